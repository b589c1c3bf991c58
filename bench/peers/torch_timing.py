"""Times a body as bench/harness.cpp does: events on a GPU, the clock elsewhere; median, best, CPU time of the host."""

import json
import statistics
import time

import torch


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(body, device, warm_up, samples, calls):
    """One call's median, best and host time in microseconds, over `samples` samples of `calls` calls each."""
    for _ in range(warm_up):
        body()
    wait(device)
    times, host = [], 0.0
    for _ in range(samples):
        if device.type == "cuda":
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            begin.record()
        began, cpu = time.perf_counter(), time.thread_time()
        for _ in range(calls):
            body()
        host += time.thread_time() - cpu
        if device.type == "cuda":
            end.record()
            end.synchronize()
            times.append(begin.elapsed_time(end) * 1e3 / calls)
        else:
            times.append((time.perf_counter() - began) / calls * 1e6)
    return {
        "median_us": statistics.median(times),
        "best_us": min(times),
        "host_us": host / (samples * calls) * 1e6,
    }


def report(name, shapes, note, **fields):
    """One JSON line per case, at once: what follows may take minutes, or fail."""
    print(json.dumps({"name": name, "shapes": shapes, "note": note, **fields}), flush=True)


def problem(sentence):
    """Why a case is missing: the harness shows it."""
    print(json.dumps({"problem": sentence}), flush=True)
