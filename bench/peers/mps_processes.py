"""N processes that train at once on one GPU, under CUDA MPS: what users do who would rather not write any of it."""

import contextlib
import os
import shutil
import statistics
import subprocess
import tempfile
import time

import torch
import torch.multiprocessing as multiprocessing

MOST_PROCESSES = 16  # each has a CUDA context of half a gigabyte and loads torch; the networks are shared out over them


@contextlib.contextmanager
def mps_server():
    """The environment of clients, while a server runs. RuntimeError where it does not start."""
    program = shutil.which("nvidia-cuda-mps-control")
    if not program:
        raise RuntimeError("nvidia-cuda-mps-control is not on this machine")
    with tempfile.TemporaryDirectory() as folder:
        environment = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        # In the foreground: it then ends with this script, however that ends.
        server = subprocess.Popen([program, "-f"], env=os.environ | environment, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        try:
            time.sleep(2)
            if server.poll() is not None:
                said = server.stderr.read().strip().splitlines()
                raise RuntimeError(f"the MPS control daemon ended with {server.returncode}: {said[-1] if said else 'it said nothing'}")
            yield environment
        finally:
            server.terminate()
            server.wait()


def work(make_step, index, arguments, ready, go, firsts, times, samples):
    """One process: makes its networks, tells what their first step came to, then makes a step whenever all are told to."""
    step, outcome = make_step(*arguments)
    firsts.put((index, outcome(step())))
    for _ in range(2):
        step()
    for _ in range(samples):
        ready.wait()
        go.wait()
        began, cpu = time.perf_counter(), time.thread_time()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        times.put((time.perf_counter() - began, time.thread_time() - cpu))


def measure_processes(make_step, shares, environment, samples, check):
    """shares: for each process what make_step() is called with; it returns a function that steps all its networks once, and
    one that makes of what the step returned something to compare. check() is given that of all processes, in the order of
    shares, before any is timed. Returns what it says, and the times: a sample is the slowest process's step."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Barrier(len(shares) + 1, timeout=300), context.Barrier(len(shares) + 1, timeout=300)
    firsts, times = context.Queue(), context.Queue()
    saved = dict(os.environ)
    os.environ.update(environment)
    try:
        processes = [context.Process(target=work, args=(make_step, index, share, ready, go, firsts, times, samples), daemon=True)
                     for index, share in enumerate(shares)]
        for process in processes:
            process.start()
    finally:
        os.environ.clear()
        os.environ.update(saved)
    try:
        outcomes = dict(firsts.get(timeout=300) for _ in processes)
        words = check([outcomes[index] for index in range(len(shares))])
        walls, hosts = [], []
        for _ in range(samples):
            ready.wait()
            go.wait()
            all_times = [times.get(timeout=300) for _ in processes]
            walls.append(max(wall for wall, _ in all_times) * 1e6)
            hosts.append(max(host for _, host in all_times) * 1e6)
    except Exception as error:  # a broken barrier, or nothing came: a process has ended
        raise RuntimeError(f"a process ended before it was timed ({type(error).__name__})") from error
    finally:
        ready.abort()  # so that nobody waits for a sample that will not come
        for process in processes:
            process.join(timeout=30)
            process.kill()
    return words, {"median_us": statistics.median(walls), "best_us": min(walls), "host_us": statistics.mean(hosts)}
