"""Ranks of a job as processes, over Gloo on the loopback: started as a launcher would, by their environment; and what they left."""

import itertools
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ESPALIER = Path(sys.argv[1]).resolve()
LIBRARY = ESPALIER.parent / "libespalier_program.so"
PACKAGE = Path(__file__).resolve().parents[2] / "python"
SEED = int(os.environ.get("ESPALIER_RANKS_SEED", random.SystemRandom().randrange(10**6)))
RANDOM = random.Random(SEED)
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("RANK", "WORLD_", "LOCAL_", "MASTER_", "OMPI_", "PMI_", "SLURM_", "TORCHELASTIC"))}
ENVIRONMENT.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", PYTHONPATH=str(PACKAGE), ESPALIER_LIBRARY=str(LIBRARY),
                   CUDA_VISIBLE_DEVICES="")
NUMBERS = itertools.count()


def patience():
    """How much slower than alone a busy machine may be."""
    return max(1, os.getloadavg()[0] / os.cpu_count())


# Seconds after which a rank is missed, also one that is not there yet: ranks load torch before they meet, and on a busy machine some do it
# seconds later than others.
LIMIT = max(5, round(3 * patience()))


def free_port():
    """Below the ports that Linux gives to outgoing connections, one of which could take it before rank 0 listens; tests at once look in
    other places."""
    while True:
        port = 20000 + (97 * os.getpid() + next(NUMBERS)) % 12000
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:  # somebody has it
                continue
        return port


def alone(*arguments):
    done = subprocess.run([ESPALIER, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Ranks:
    """The processes of one job; `environments`: what one rank is told otherwise; `folders`: where one works, if not here."""

    def __init__(self, size, *arguments, port=None, environments=None, folders=None, only=None):
        self.port = port or free_port()
        self.processes = {}
        for rank in only if only is not None else range(size):
            environment = dict(ENVIRONMENT, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(self.port))
            environment.update((environments or {}).get(rank, {}))
            own = arguments[0][rank] if arguments and isinstance(arguments[0], dict) else arguments
            self.processes[rank] = subprocess.Popen([sys.executable, "-m", "espalier", *map(str, own)], env=environment,
                                                    cwd=(folders or {}).get(rank), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self, longest=240):
        """Exit codes, output and errors of each. longest: seconds, on a machine with nothing else to do."""
        try:
            return {rank: (*process.communicate(timeout=longest * patience()), process.returncode) for rank, process in self.processes.items()}
        finally:
            for process in self.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.communicate()

    def must_succeed(self):
        ended = self.wait()
        for rank, (_, errors, code) in ended.items():
            assert code == 0, f"rank {rank}: exit {code}: {errors}"
        return ended


def without_times(line):
    return {key: value for key, value in line.items() if "seconds" not in key and "SPS" not in key and not key.startswith("time/")}


def results(folder):
    """The metrics but for the times, and all that the last checkpoint holds."""
    lines = [without_times(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = newest_checkpoint(folder)
    manifest = json.loads((last / "manifest.json").read_text())
    return lines, manifest["state"], manifest["tensor_crc32c"], (last / "state.safetensors").read_bytes()


def rank_bytes(run_dir):
    """What rank 0 sent and received in the first epoch."""
    lines = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return next(line["time/rank_bytes"] for line in lines if "time/rank_bytes" in line)


def must_be_alike(folder, expected):
    for what, one, other in zip(("metrics", "state", "checksums", "tensors"), results(folder), expected):
        if one != other and what == "metrics":
            for line, wanted in zip(one, other):
                assert line == wanted, f"{folder.name}: {line} != {wanted}"
        if one != other and what in ("state", "checksums"):
            keys = [key for key in {*one, *other} if one.get(key) != other.get(key)]
            raise AssertionError(f"{folder.name}: {what}: {[(key, one.get(key), other.get(key)) for key in sorted(keys)[:5]]}")
        assert one == other, f"{folder.name}: {what} differ"


def wait_until(ranks, is_so):
    """While ranks work, or where they have done it."""
    while not is_so():
        for rank, process in ranks.processes.items():
            assert process.poll() is None or is_so(), f"rank {rank}: {process.stderr.read()}"
        time.sleep(0.02)


def wait_for_lines(ranks, run_dir, count):
    path = run_dir / "metrics.jsonl"
    wait_until(ranks, lambda: path.exists() and path.read_text().count("\n") >= count)


def wait_for_sessions(ranks, run_dir, count):
    path = run_dir / "environment.json"
    wait_until(ranks, lambda: path.exists() and len(json.loads(path.read_text())["sessions"]) >= count)


def the_error(errors):
    """The one sentence that a rank ends with."""
    found = [line for line in errors.splitlines() if "error:" in line]
    assert len(found) == 1, errors
    return found[0]


def must_name(ranks, lost, began, folder):
    """All others end within the limit and a little, with one sentence that names the rank; the last checkpoint is whole."""
    alive = Ranks.__new__(Ranks)
    alive.processes = {rank: process for rank, process in ranks.processes.items() if rank != lost}
    for rank, (_, errors, code) in alive.wait(60).items():
        assert code == 1, f"rank {rank}: exit {code}: {errors}"
        assert f"rank {lost}" in the_error(errors), errors
    took = time.monotonic() - began
    assert took < (2 * LIMIT + 3) * patience(), f"it took {took:.1f} s to notice"
    must_be_whole(folder / "run")
    return took


def must_be_whole(run_dir):
    """The newest checkpoint, by its checksums: a run that goes on would pass over one that is damaged."""
    assert "whole, all checksums right" in alone("inspect", newest_checkpoint(run_dir)).stdout


def newest_checkpoint(run_dir):
    return max(path for path in (run_dir / "checkpoints").iterdir() if not path.name.startswith("."))


def run_drills(*drills):
    """Each in a folder of its own; those that the command line names, or all."""
    if os.environ.get("ESPALIER_SANITIZE"):
        print("skipped: Python cannot load instrumented code")
        return
    wanted = sys.argv[2:]
    print(f"seed {SEED}")
    for drill in drills:
        if wanted and drill.__name__ not in wanted:
            continue
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="espalier_ranks_"))
        try:
            drill(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{drill.__name__}: passed in {time.monotonic() - began:.1f} s", flush=True)
