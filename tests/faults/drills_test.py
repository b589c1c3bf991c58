"""Drills: what must happen when something goes wrong. Small by default; ESPALIER_DRILLS=large for the long form.

Every drill works on tiny networks on the CPU, so that what is drilled is the run layer, not the training.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ESPALIER = Path(sys.argv[1]).resolve()
LARGE = os.environ.get("ESPALIER_DRILLS") == "large"
SEED = int(os.environ.get("ESPALIER_DRILLS_SEED", random.SystemRandom().randrange(10**6)))
RANDOM = random.Random(SEED)
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")

DATA = ["--synthetic-train", "240", "--synthetic-test", "40", "--synthetic-size", "8x8", "--crop-pad", "1"]
POPULATION = ["train", "population", "--devices", "cpu,cpu", *DATA, "--lanes", "3", "--batch", "24", "--controller", "random",
              "--embargo", "1", "--epochs"]
PPO = ["train", "ppo", "--devices", "cpu", *DATA, "--envs", "4", "--batch-per-env", "12", "--episode-length", "6",
       "--encoder-size", "16", "--hidden-size", "16", "--rounds"]
LINET = ["train", "linet", "--device", "cpu", "--synthetic-train", "96", "--synthetic-test", "32", "--batch", "16",
         "--width", "0.0625", "--epochs"]


def command(*arguments):
    return [str(ESPALIER), *map(str, arguments)]


def run(*arguments, **options):
    return subprocess.run(command(*arguments), env=ENVIRONMENT, capture_output=True, text=True, timeout=300, **options)


def start(*arguments, **options):
    return subprocess.Popen(command(*arguments), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def must_succeed(*arguments):
    done = run(*arguments)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done


def without_times(value):
    if not isinstance(value, dict):
        return value
    return {key: without_times(inner) for key, inner in value.items()
            if "seconds" not in key and "SPS" not in key and not key.startswith("time/")}


def results(folder):
    """The metrics but for the times, and all that the last checkpoint holds."""
    lines = [without_times(json.loads(line)) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    last = max(path for path in (folder / "checkpoints").iterdir() if not path.name.startswith("."))
    manifest = json.loads((last / "manifest.json").read_text())
    return lines, manifest["state"], manifest["tensor_crc32c"], (last / "state.safetensors").read_bytes()


def must_be_alike(folder, undisturbed):
    for what, one, other in zip(("metrics", "state", "checksums", "tensors"), results(folder), undisturbed):
        assert one == other, f"{folder.name}: {what} differ from those of an undisturbed run"


def time_of(*arguments):
    began = time.monotonic()
    must_succeed(*arguments)
    return time.monotonic() - began


def killed_at_random_moments(folder):
    """kill -9 again and again: resumed, it ends where an undisturbed run does."""
    kills = 200 if LARGE else 20
    for name, job in (("population", [*POPULATION, 12]), ("ppo", [*PPO, 3]), ("linet", [*LINET, 2])):
        whole = folder / f"{name}_whole"
        seconds = time_of(*job, "--run-dir", whole, "--checkpoint-minutes", 1000)
        undisturbed = results(whole)
        killed = folder / f"{name}_killed"
        done = 0
        share = kills if name == "population" else kills // 4
        for _ in range(20 * share):
            process = start(*job, "--run-dir", killed, "--checkpoint-minutes", 0)
            try:
                # Some in the middle of loading, most while it trains and writes.
                process.communicate(timeout=RANDOM.uniform(0.05, 1.2 * seconds) if done < share else 300)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                done += 1
                continue
            assert process.returncode == 0, process.returncode
            if done >= share:
                break
            # It ended before it was killed: once more from the start.
            must_be_alike(killed, undisturbed)
            shutil.rmtree(killed)
        must_be_alike(killed, undisturbed)
        leftovers = [path.name for path in (killed / "checkpoints").iterdir() if path.name.startswith(".")]
        assert not leftovers, f"left behind: {leftovers}"
        print(f"  {name}: {done} kills")


def started_and_stopped_again_and_again(folder):
    """Ctrl-C, start again: nothing stale ever blocks a start."""
    run_dir = folder / "run"
    for attempt in range(100 if LARGE else 10):
        process = start(*POPULATION, 100000, "--run-dir", run_dir)
        while not (run_dir / "metrics.jsonl").exists() or process.poll() is not None:
            assert process.poll() is None, f"start {attempt + 1}: {process.stderr.read()}"
            time.sleep(0.01)
        time.sleep(RANDOM.uniform(0, 0.5))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        # -2: the signal came before the program was loaded.
        assert process.returncode in (130, -signal.SIGINT), f"start {attempt + 1}: exit {process.returncode}: {errors}"


def stopped_by_signals(folder):
    """Finishes the batch, writes a checkpoint, and says by its exit code why it ended."""
    for name, job in (("population", [*POPULATION, 100000]), ("ppo", [*PPO, 100000]), ("linet", [*LINET, 100000])):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGUSR1, 143)):
            run_dir = folder / f"{name}_{code}_{number.name}"
            process = start(*job, "--run-dir", run_dir)
            wait_for_lines(process, run_dir, 2)
            process.send_signal(number)
            began = time.monotonic()
            output, _ = process.communicate(timeout=60)
            assert process.returncode == code, f"{name}, {number.name}: exit {process.returncode}"
            assert time.monotonic() - began < 5 * patience(), f"{name}, {number.name}: took too long"
            assert "--resume" in output, output
            results(run_dir)  # there is a checkpoint, and it can be read


def signalled_twice_within_a_moment(folder):
    """As `timeout` does it, to the process and then to its group: one signal, and the checkpoint is written."""
    for attempt in range(100 if LARGE else 12):
        run_dir = folder / f"twice_{attempt}"
        process = start(*POPULATION, 100000, "--run-dir", run_dir, start_new_session=True)
        wait_for_lines(process, run_dir, 1)
        time.sleep(RANDOM.uniform(0, 0.05))
        process.send_signal(signal.SIGTERM)
        time.sleep(0.0005)
        try:
            os.killpg(process.pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # it has ended already
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 143, f"try {attempt + 1}: exit {process.returncode}: {errors}"
        assert "--resume" in output, f"try {attempt + 1}: {output}"
        results(run_dir)  # there is a checkpoint, and it can be read


def signalled_again_after_a_second(folder):
    """Who does not wait for the batch in hand asks again, after a second: it ends at once."""
    # A batch of minutes, so that the first signal cannot be followed.
    process = start("train", "population", "--devices", "cpu", "--host", "cifar_wide", "--lanes", 16, "--batch", 1000,
                    "--synthetic-train", 1200, "--synthetic-test", 20, "--no-tui", "--run-dir", folder / "run")
    while not (folder / "run" / "environment.json").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    time.sleep(1.2)
    assert process.poll() is None, f"exit {process.returncode}: the first signal was followed too soon for this drill"
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    process.communicate(timeout=60)
    assert process.returncode == 143, process.returncode
    assert time.monotonic() - began < 1 * patience(), "the second signal took too long"


def patience():
    """How much slower than alone a busy machine may be."""
    return max(1, os.getloadavg()[0] / os.cpu_count())


def wait_for_lines(process, run_dir, count):
    path = run_dir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < count:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)


def two_in_one_directory(folder):
    """The second is refused, and names the first; a dead one's lock is no obstacle."""
    run_dir = folder / "run"
    first = start(*POPULATION, 100000, "--run-dir", run_dir)
    wait_for_lines(first, run_dir, 1)
    second = run(*POPULATION, 100000, "--run-dir", run_dir)
    assert second.returncode == 1, second.returncode
    assert f"process {first.pid}" in second.stderr, second.stderr
    first.kill()
    first.communicate()
    third = start(*POPULATION, 100000, "--run-dir", run_dir)
    time.sleep(2)
    assert third.poll() is None, third.stderr.read()
    third.send_signal(signal.SIGTERM)
    third.communicate(timeout=30)
    assert third.returncode == 143, third.returncode


def damaged_files(folder):
    """One clear sentence, exit 1 or 2; a damaged newest checkpoint falls back to the one before."""
    run_dir = folder / "run"
    job = [*POPULATION, 4, "--run-dir", run_dir, "--checkpoint-minutes", 0, "--keep-checkpoints", 3]
    must_succeed(*job)
    undisturbed = results(run_dir)
    names = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    assert len(names) >= 3, names
    for damaged in ("state.safetensors", "manifest.json"):
        for damage in (cut_in_half, flip_a_bit, make_larger):
            copy = folder / "copy"
            shutil.copytree(run_dir, copy)
            damage(copy / "checkpoints" / names[-1] / damaged)
            again = must_succeed(*[copy if part is run_dir else part for part in job])
            assert "damaged" in again.stderr or "going back" in again.stderr, again.stderr
            must_be_alike(copy, undisturbed)
            for name in names:
                damage(copy / "checkpoints" / name / damaged)
            refused(run(*[copy if part is run_dir else part for part in job]), (1, 2), str(copy))
            shutil.rmtree(copy)
    config = folder / "config.json"
    for text in ("", "{", '{"epochs": "many"}', '{"nonsense": 1}', "[" * 100000, "\0" * 100):
        config.write_text(text)
        refused(run("train", "population", "--config-json", config), (1, 2), "config")
    must_succeed("data", "convert", "synthetic:shapes10", folder / "data.safetensors", *DATA[:6])
    for damage in (cut_in_half, make_larger):
        shutil.copy(folder / "data.safetensors", folder / "damaged.safetensors")
        damage(folder / "damaged.safetensors")
        refused(run(*POPULATION, 1, "--data", f"safetensors:{folder / 'damaged.safetensors'}", "--run-dir", folder / "never"),
                (1, 2), "damaged.safetensors")


def refused(done, codes, name):
    assert done.returncode in codes, f"exit {done.returncode}: {done.stderr}"
    errors = [line for line in done.stderr.splitlines() if "error:" in line]
    assert len(errors) == 1 and name in errors[0], done.stderr


def cut_in_half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_bit(path):
    data = bytearray(path.read_bytes())
    data[len(data) * 2 // 3] ^= 1
    path.write_bytes(data)


def make_larger(path):
    with path.open("ab") as file:
        file.write(b"x" * 1000)


def another_run_in_the_directory(folder):
    """Refused key by key, unless it is allowed, or asked to begin anew."""
    run_dir = folder / "run"
    must_succeed(*POPULATION, 2, "--run-dir", run_dir)
    refused(run(*POPULATION, 3, "--run-dir", run_dir), (2,), "epochs was 2, now 3")
    refused(run(*POPULATION, 2, "--run-dir", run_dir, "--seed", 9), (2,), "seed was 0, now 9")
    must_succeed(*POPULATION, 3, "--run-dir", run_dir, "--allow-change", "epochs")
    # From now on the run has three, without being told again.
    assert json.loads((run_dir / "config.json").read_text())["epochs"] == 3
    changed = json.loads((run_dir / "environment.json").read_text())["sessions"][-1]["changed"]
    assert changed == {"epochs": {"was": 2, "now": 3}}, changed
    must_succeed("train", "population", "--resume", run_dir)
    must_succeed(*POPULATION, 3, "--run-dir", run_dir)
    refused(run(*POPULATION, 2, "--run-dir", run_dir), (2,), "epochs was 3, now 2")
    must_succeed(*POPULATION, 2, "--run-dir", run_dir, "--restart", "fresh", "--seed", 9)
    refused(run(*POPULATION, 2, "--resume", folder / "nowhere"), (2,), "nowhere")


def full_disk(folder):
    """Training goes on, says so, tears nothing; and fails at the end where results would be lost."""
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", disk], capture_output=True).returncode != 0:
        print("  skipped: a tmpfs cannot be mounted here")
        return
    try:
        done = run(*POPULATION, 4, "--run-dir", disk / "run", "--checkpoint-minutes", 0)
        assert done.returncode == 1, f"exit {done.returncode}: {done.stderr}"
        assert "warning:" in done.stderr and "No space left" in done.stderr, done.stderr
        assert "epoch 4/4" in done.stdout, "training did not go on"
        for line in (disk / "run" / "metrics.jsonl").read_text().splitlines():
            json.loads(line)
        unfinished = list((disk / "run").glob("checkpoints/.unfinished*"))
        assert not unfinished, unfinished
        # Made larger, the same command goes on, or begins anew, and ends well.
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        must_succeed(*POPULATION, 4, "--run-dir", disk / "run")
        whole = folder / "whole"
        must_succeed(*POPULATION, 4, "--run-dir", whole)
        must_be_alike(disk / "run", results(whole))
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        refused(run(*POPULATION, 5, "--run-dir", disk / "other"), (1,), "other")
    finally:
        subprocess.run(["umount", "-l", disk], check=False)


def vanished_directory(folder):
    """Someone removes the run directory: said at the end at the latest, with a non-zero exit."""
    process = start(*POPULATION, 40, "--run-dir", folder / "run")
    wait_for_lines(process, folder / "run", 1)
    while (folder / "run").exists():  # the run may put a file into a folder that is just being emptied
        shutil.rmtree(folder / "run", ignore_errors=True)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1, f"exit {process.returncode}: {errors}"
    assert "lost" in errors or "was not written" in errors, errors


def main():
    wanted = sys.argv[2:]
    drills = [killed_at_random_moments, started_and_stopped_again_and_again, stopped_by_signals, signalled_twice_within_a_moment,
              signalled_again_after_a_second, two_in_one_directory, damaged_files, another_run_in_the_directory, full_disk, vanished_directory]
    print(f"seed {SEED}")
    for drill in drills:
        if wanted and drill.__name__ not in wanted:
            continue
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="espalier_drill_") as folder:
            drill(Path(folder))
        print(f"{drill.__name__}: passed in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
