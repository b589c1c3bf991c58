"""A soak: PPO rounds that plant and prune without end take no more memory, descriptors or threads than at first.

Three minutes on tiny networks; ESPALIER_SOAK_MINUTES for longer. ESPALIER_SOAK_DEVICE=cuda:0 soaks a GPU, whose memory and
kept graphs must stay flat too.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

MINUTES = float(os.environ.get("ESPALIER_SOAK_MINUTES", "3"))
DEVICE = os.environ.get("ESPALIER_SOAK_DEVICE", "cpu")

JOB = ["train", "ppo", "--devices", DEVICE, "--synthetic-train", "64", "--synthetic-test", "16", "--synthetic-size", "8x8", "--crop-pad",
       "1", "--envs", "4", "--batch-per-env", "8", "--episode-length", "12", "--embargo", "1", "--encoder-size", "16", "--hidden-size",
       "16", "--rounds", "1000000000", "--checkpoint-minutes", "0.05"]


def sample(process):
    status = dict(line.split(":", 1) for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if ":" in line)
    return {"memory MiB": int(status["VmRSS"].split()[0]) / 1024, "threads": int(status["Threads"]),
            "descriptors": len(os.listdir(f"/proc/{process.pid}/fd"))}


def device_samples(run_dir):
    """What round lines tell of the device."""
    kept = {"time/device_mib": "device MiB", "time/graphs_kept": "graphs"}
    rounds = []
    for line in (run_dir / "metrics.jsonl").read_text().splitlines():
        line = json.loads(line)
        if line["kind"] == "round":
            rounds.append({name: line[key] for key, name in kept.items() if key in line})
    return rounds


def must_be_flat(samples, least_growth):
    """The last third against the one before it; the first third may warm up."""
    third = len(samples) // 3
    assert third >= 3, f"only {len(samples)} samples"
    for name in samples[0]:
        before = median(each[name] for each in samples[third : 2 * third])
        after = median(each[name] for each in samples[2 * third :])
        print(f"{name}: {samples[0][name]:g} at first, {before:g} in the second third, {after:g} in the last")
        assert after <= before * 1.01 + least_growth.get(name, 0), f"{name} grew from {before:g} to {after:g}"


def main():
    with tempfile.TemporaryDirectory(prefix="espalier_soak_") as folder:
        run_dir = Path(folder) / "run"
        process = subprocess.Popen([sys.argv[1], *JOB, "--run-dir", run_dir], env=dict(os.environ, OMP_NUM_THREADS="1"),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        samples = []
        end = time.monotonic() + 60 * MINUTES
        while time.monotonic() < end:
            time.sleep(2)
            assert process.poll() is None, process.stderr.read()
            samples.append(sample(process))
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 143, errors
        lines = (run_dir / "metrics.jsonl").read_text()
        rounds = device_samples(run_dir)
        planted, pruned = lines.count('"GERMINATE '), lines.count('"PRUNE ')
        print(f"{len(rounds)} rounds, {planted} seeds planted, {pruned} pruned")
        assert len(rounds) >= 10 and planted > 50, "too little happened"
        # A checkpoint that is being written has a thread and a few files of its own.
        must_be_flat(samples, {"memory MiB": 2, "threads": 1, "descriptors": 4})
        if rounds and rounds[0]:
            must_be_flat(rounds, {})


if __name__ == "__main__":
    main()
