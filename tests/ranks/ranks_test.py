"""Several processes on one job, over Gloo on the loopback: the same bits as one process, and what happens when a rank is lost.

Ranks are started as a launcher would, by their environment; torchrun itself where restarts are its matter.
"""

import array
import json
import os
import random
import shutil
import signal
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
LIMIT = 3  # seconds after which a rank is missed
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if not name.startswith(("RANK", "WORLD_", "LOCAL_", "MASTER_", "OMPI_", "SLURM_", "TORCHELASTIC"))}
ENVIRONMENT.update(OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive", PYTHONPATH=str(PACKAGE), ESPALIER_LIBRARY=str(LIBRARY),
                   CUDA_VISIBLE_DEVICES="")

DATA = ["--synthetic-train", "120", "--synthetic-test", "40", "--synthetic-size", "8x8", "--crop-pad", "1", "--threads", "1"]
POPULATION = ["train", "population", *DATA, "--batch", "12", "--controller", "random", "--embargo", "1", "--gate-training-steps", "1"]
PPO = ["train", "ppo", *DATA, "--envs", "4", "--batch-per-env", "10", "--episode-length", "5", "--encoder-size", "8",
       "--hidden-size", "8"]
# All that is drawn, and all that depends on a whole batch, is switched on. SGD: AdamW divides by the size of gradients, and makes as much
# of one that is all rounding as of any other.
LINET = ["train", "linet", "--synthetic-train", "50", "--synthetic-test", "20", "--synthetic-size", "32x32", "--crop-pad", "1", "--threads", "1",
         "--device", "cpu", "--width", "0.0625", "--batch", "8", "--optimizer", "sgd", "--learning-rate", "0.02", "--modality-dropout", "0.4",
         "--modality-ramp", "0", "--dropout", "0.2", "--balance", "0.05", "--clip", "1"]


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def alone(*arguments):
    done = subprocess.run([ESPALIER, *map(str, arguments)], env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr}"
    return done


class Ranks:
    """The processes of one job; `environments`: what one rank is told otherwise."""

    def __init__(self, size, *arguments, port=None, environments=None, only=None):
        self.port = port or free_port()
        self.processes = {}
        for rank in only if only is not None else range(size):
            environment = dict(ENVIRONMENT, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(self.port))
            environment.update((environments or {}).get(rank, {}))
            own = arguments[0][rank] if arguments and isinstance(arguments[0], dict) else arguments
            self.processes[rank] = subprocess.Popen([sys.executable, "-m", "espalier", *map(str, own)], env=environment,
                                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def wait(self, longest=240):
        """Exit codes, output and errors of each."""
        try:
            return {rank: (*process.communicate(timeout=longest), process.returncode) for rank, process in self.processes.items()}
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
    last = max(path for path in (folder / "checkpoints").iterdir() if not path.name.startswith("."))
    manifest = json.loads((last / "manifest.json").read_text())
    return lines, manifest["state"], manifest["tensor_crc32c"], (last / "state.safetensors").read_bytes()


def must_be_alike(folder, expected):
    for what, one, other in zip(("metrics", "state", "checksums", "tensors"), results(folder), expected):
        if one != other and what == "metrics":
            for line, wanted in zip(one, other):
                assert line == wanted, f"{folder.name}: {line} != {wanted}"
        if one != other and what in ("state", "checksums"):
            keys = [key for key in {*one, *other} if one.get(key) != other.get(key)]
            raise AssertionError(f"{folder.name}: {what}: {[(key, one.get(key), other.get(key)) for key in sorted(keys)[:5]]}")
        assert one == other, f"{folder.name}: {what} differ"


def tensors_in(data):
    """The f32 and f64 tensors of a safetensors file, by name."""
    length = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:length])
    types = {"F32": "f", "F64": "d"}
    return {name: array.array(types[entry["dtype"]], data[length + entry["data_offsets"][0]:length + entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__" and entry["dtype"] in types}


def distance(one, other):
    """Between two runs of one network: the largest difference in a tensor of the network, beside that tensor's largest value, and the
    largest in a line, beside the number there."""
    weights, others = tensors_in(one[3]), tensors_in(other[3])
    assert weights.keys() == others.keys()
    apart = max(max(abs(x - y) for x, y in zip(values, others[name])) / max(map(abs, values))
                for name, values in weights.items() if name.startswith("network.") and any(values))
    assert len(one[0]) == len(other[0])
    for line, wanted in zip(one[0], other[0]):
        assert line.keys() == wanted.keys()
        apart = max([apart] + [abs(line[key] - wanted[key]) / max(abs(wanted[key]), 1e-3) for key in line if isinstance(wanted[key], float)])
    return apart


def wait_for_lines(ranks, run_dir, count):
    path = run_dir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < count:
        for rank, process in ranks.processes.items():
            assert process.poll() is None, f"rank {rank}: {process.stderr.read()}"
        time.sleep(0.02)


def wait_for_sessions(ranks, run_dir, count):
    path = run_dir / "environment.json"
    while not path.exists() or len(json.loads(path.read_text())["sessions"]) < count:
        for rank, process in ranks.processes.items():
            assert process.poll() is None, f"rank {rank}: {process.stderr.read()}"
        time.sleep(0.02)


def the_error(errors):
    """The one sentence that a rank ends with."""
    found = [line for line in errors.splitlines() if "error:" in line]
    assert len(found) == 1, errors
    return found[0]


def lanes_do_not_feel_where_they_run(folder):
    """2 ranks with 4 lanes each, and 3 with unequal shares, leave the files of 1 with 8."""
    job = [*POPULATION, "--lanes", 8, "--epochs", 6, "--plan", "own"]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "one")
    expected = results(folder / "one")
    assert any(line.get("seeds") for line in expected[0]), "nothing grew: this would show little"
    for size, devices in ((2, "cpu"), (3, "cpu")):
        ended = Ranks(size, *job, "--devices", devices, "--run-dir", folder / f"of_{size}").must_succeed()
        must_be_alike(folder / f"of_{size}", expected)
        assert "test accuracy" in ended[0][0] and ended[1][0] == "", "rank 0 speaks, and nobody else"
    lines = [json.loads(line) for line in (folder / "of_2" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["time/rank_bytes"] > 0 for line in lines if line["kind"] == "epoch")
    assert json.loads((folder / "of_2" / "environment.json").read_text())["ranks"] == 2


def one_pass_is_shared_out_over_all_ranks(folder):
    """--plan split: the same samples for a lane, whatever the number of ranks; also with two shards in one process."""
    job = [*POPULATION, "--lanes", 4, "--epochs", 3, "--plan", "split", "--batch", 8]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "one")
    expected = results(folder / "one")
    alone(*job, "--devices", "cpu,cpu", "--run-dir", folder / "two_shards")
    must_be_alike(folder / "two_shards", expected)
    Ranks(2, *job, "--devices", "cpu", "--run-dir", folder / "two_ranks").must_succeed()
    must_be_alike(folder / "two_ranks", expected)


def resumed_with_another_number_of_ranks(folder):
    """Stopped by a signal to one rank, in the middle of an epoch; gone on with by fewer and more; the end is that of one process."""
    job = [*POPULATION, "--lanes", 6, "--epochs", 24]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    run_dir = folder / "run"
    for size in (2, 3):
        ranks = Ranks(size, *job, "--run-dir", run_dir, "--devices", "cpu")
        wait_for_sessions(ranks, run_dir, size - 1)
        wait_for_lines(ranks, run_dir, 7 * (size - 1))
        ranks.processes[size - 1].send_signal(signal.SIGTERM)
        for rank, (_, errors, code) in ranks.wait(60).items():
            assert code == 143, f"of {size}, rank {rank}: exit {code}: {errors}"
        results(run_dir)
    alone(*job, "--devices", "cpu,cpu", "--run-dir", run_dir)
    must_be_alike(run_dir, results(folder / "whole"))
    sessions = json.loads((run_dir / "environment.json").read_text())["sessions"]
    assert [bool(session["resumed"]) for session in sessions] == [False, True, True], sessions


def a_policy_learns_the_same_over_ranks(folder):
    """One policy at rank 0, whose networks are at all ranks; also when it is resumed by one process."""
    job = [*PPO, "--rounds", 3]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "one")
    expected = results(folder / "one")
    Ranks(2, *job, "--devices", "cpu", "--run-dir", folder / "two").must_succeed()
    must_be_alike(folder / "two", expected)
    assert weights_in(folder / "two" / "policy.safetensors") == weights_in(folder / "one" / "policy.safetensors")


def weights_in(path):
    """A safetensors file without its header, which says where the run was."""
    data = path.read_bytes()
    return data[8 + int.from_bytes(data[:8], "little"):]


def comparisons_are_the_same_over_ranks(folder):
    """The lines, and the networks that are kept, byte for byte."""
    job = ["evaluate", *DATA, "--controllers", "none,random", "--envs", 3, "--batch-per-env", 10, "--episode-length", 8, "--episodes", 2,
           "--embargo", 1, "--gate-training-steps", 1, "--seed", 7]
    alone(*job, "--devices", "cpu", "--run-dir", folder / "one", "--keep", folder / "kept_by_one")
    Ranks(2, *job, "--devices", "cpu", "--run-dir", folder / "two", "--keep", folder / "kept_by_two").must_succeed()
    one, two = ([without_times(json.loads(line)) for line in (folder / name / "metrics.jsonl").read_text().splitlines()]
                for name in ("one", "two"))
    assert one == two, "the lines differ"
    kept, again = ({path.name: path.read_bytes() for path in (folder / name).iterdir()} for name in ("kept_by_one", "kept_by_two"))
    assert kept == again, f"the networks differ: {[name for name in {*kept, *again} if kept.get(name) != again.get(name)]}"
    lanes = {int(name.split("_lane")[1].split(".")[0]) for name in kept}
    assert len(kept) == 8 and lanes == {0, 1}, f"this would show little: not of both ranks, but of {lanes}"
    assert any(b".seed." in data for name, data in kept.items() if "lane1" in name), "nothing grew at the other rank: this would show little"


def a_linet_is_trained_by_ranks_together(folder):
    """With --sync-norm 2 and 4 ranks come to the network of one process, but for roundings, and no further from it than that process
    comes in another memory format, which rounds otherwise. Stopped by a signal to one rank: the same ranks go on exactly, one process
    but for roundings."""
    job = [*LINET, "--epochs", 2, "--sync-norm"]
    alone(*job, "--run-dir", folder / "one")
    one = results(folder / "one")
    alone(*job, "--run-dir", folder / "contiguous", "--memory-format", "contiguous")
    rounding = distance(results(folder / "contiguous"), one)
    assert 0 < rounding < 1e-3, rounding

    def must_be_near(name):
        apart = distance(results(folder / name), one)
        print(f"  {name}: {apart:.1e} from one process; another memory format: {rounding:.1e}")
        assert apart <= 4 * rounding, f"{name}: {apart} from one process, where roundings make {rounding}"

    for size in (2, 4):
        ended = Ranks(size, *job, "--run-dir", folder / f"of_{size}").must_succeed()
        assert "test accuracy" in ended[0][0] and ended[1][0] == "", "rank 0 speaks, and nobody else"
        must_be_near(f"of_{size}")
    assert json.loads((folder / "of_2" / "environment.json").read_text())["ranks"] == 2
    assert json.loads((folder / "of_2" / "metrics.jsonl").read_text().splitlines()[0])["time/rank_bytes"] > 0

    stopped = Ranks(2, *job, "--run-dir", folder / "stopped", "--checkpoint-minutes", 0)
    wait_for_lines(stopped, folder / "stopped", 1)
    stopped.processes[1].send_signal(signal.SIGTERM)
    for rank, (_, errors, code) in stopped.wait(60).items():
        assert code == 143, f"rank {rank}: exit {code}: {errors}"
    shutil.copytree(folder / "stopped", folder / "on_by_one")
    alone(*job, "--run-dir", folder / "on_by_one")
    must_be_near("on_by_one")
    Ranks(2, *job, "--run-dir", folder / "stopped").must_succeed()
    must_be_alike(folder / "stopped", results(folder / "of_2"))


def a_rank_of_a_linet_is_killed(folder):
    """kill -9 of a rank in the middle of a step, with norms of each rank's own; the same command goes on. A batch that does not divide is
    refused."""
    job = [*LINET, "--epochs", 100000, "--run-dir", folder / "run", "--checkpoint-minutes", 0, "--rank-limit", LIMIT]
    ranks = Ranks(2, *job)
    wait_for_lines(ranks, folder / "run", 1)
    lost = RANDOM.randrange(2)
    time.sleep(RANDOM.uniform(0, 0.3))
    ranks.processes[lost].kill()
    took = must_name(ranks, lost, time.monotonic(), folder)
    print(f"  rank {lost} killed: noticed in {took:.1f} s")
    resumed = Ranks(2, *job)
    wait_for_sessions(resumed, folder / "run", 2)
    resumed.processes[0].send_signal(signal.SIGTERM)
    for rank, (_, errors, code) in resumed.wait(60).items():
        assert code == 143, f"rank {rank}: exit {code}: {errors}"
    odd = Ranks(2, *LINET, "--batch", 7, "--run-dir", folder / "odd").wait(60)
    said = [the_error(errors) for _, errors, code in odd.values() if "--batch 7" in errors]
    assert said and "multiple of 2" in said[0], odd


def endless(folder, size=2, lanes=4):
    ranks = Ranks(size, *POPULATION, "--lanes", lanes, "--epochs", 100000, "--devices", "cpu", "--run-dir", folder / "run",
                  "--checkpoint-minutes", 0, "--rank-limit", LIMIT)
    wait_for_lines(ranks, folder / "run", 2 * lanes)
    return ranks


def must_name(ranks, lost, began, folder):
    """All others end within the limit and a little, with one sentence that names the rank; the last checkpoint is whole."""
    alive = Ranks.__new__(Ranks)
    alive.processes = {rank: process for rank, process in ranks.processes.items() if rank != lost}
    for rank, (_, errors, code) in alive.wait(60).items():
        assert code == 1, f"rank {rank}: exit {code}: {errors}"
        assert f"rank {lost}" in the_error(errors), errors
    took = time.monotonic() - began
    assert took < (2 * LIMIT + 3) * patience(), f"it took {took:.1f} s to notice"
    results(folder / "run")
    return took


def patience():
    """How much slower than alone a busy machine may be."""
    return max(1, os.getloadavg()[0] / os.cpu_count())


def a_rank_is_killed(folder):
    """kill -9 of each rank, rank 0 with its store too, at a random moment; the same command goes on."""
    for lost in (0, 1):
        own = folder / f"lost_{lost}"
        own.mkdir()
        ranks = endless(own)
        time.sleep(RANDOM.uniform(0, 0.3))
        ranks.processes[lost].kill()
        took = must_name(ranks, lost, time.monotonic(), own)
        print(f"  rank {lost} killed: noticed in {took:.1f} s")
    resumed = Ranks(2, *POPULATION, "--lanes", 4, "--epochs", 100000, "--devices", "cpu", "--run-dir", own / "run", "--rank-limit", LIMIT)
    wait_for_sessions(resumed, own / "run", 2)
    resumed.processes[0].send_signal(signal.SIGTERM)
    for rank, (_, errors, code) in resumed.wait(60).items():
        assert code == 143, f"rank {rank}: exit {code}: {errors}"


def a_rank_is_stopped(folder):
    """SIGSTOP beyond the limit: a rank that hangs, of four, and the rank that keeps the store."""
    for size, lost in ((4, 2), (2, 0)):
        own = folder / f"stopped_{lost}"
        own.mkdir()
        ranks = endless(own, size)
        ranks.processes[lost].send_signal(signal.SIGSTOP)
        took = must_name(ranks, lost, time.monotonic(), own)
        # When it goes on it finds that it was given up.
        ranks.processes[lost].send_signal(signal.SIGCONT)
        _, errors = ranks.processes[lost].communicate(timeout=30)
        assert ranks.processes[lost].returncode == 1, errors
        print(f"  rank {lost} of {size} stopped: noticed in {took:.1f} s")


def ranks_that_do_not_meet(folder):
    """A wrong address, and a rank that never comes: one sentence each, within the limit."""
    job = [*POPULATION, "--lanes", 2, "--epochs", 1, "--devices", "cpu", "--rank-limit", LIMIT, "--run-dir", folder / "run"]
    wrong = Ranks(2, *job, only=[1])
    began = time.monotonic()
    missing = Ranks(2, *job, only=[0])
    (_, errors, code), = wrong.wait(60).values()
    assert code == 1 and f"127.0.0.1:{wrong.port}" in the_error(errors) and "MASTER_ADDR" in errors, errors
    (_, errors, code), = missing.wait(60).values()
    assert code == 1 and "rank 1" in the_error(errors) and "did not come" in errors, errors
    assert time.monotonic() - began < (2 * LIMIT + 10) * patience()
    assert not (folder / "run").exists(), "nothing is left of a run that did not begin"


def ranks_that_differ(folder):
    """Flags, and a job that is one process's, are refused with a sentence."""
    job = [*POPULATION, "--lanes", 2, "--epochs", 1, "--devices", "cpu", "--rank-limit", LIMIT, "--run-dir", folder / "run"]
    ended = Ranks(2, {0: job, 1: [*job, "--seed", "9"]}).wait(60)
    assert ended[0][2] == 2 and "rank 1" in the_error(ended[0][1]) and "seed" in ended[0][1], ended[0][1]
    assert ended[1][2] == 1 and "rank 0 failed" in the_error(ended[1][1]), ended[1][1]
    few = Ranks(2, *job[:-2], "--run-dir", folder / "few", "--lanes", 1).wait(60)
    said = [errors for _, errors, code in few.values() if "--lanes 1" in errors and code in (1, 2)]
    assert said, few
    refused = subprocess.run([ESPALIER, *map(str, job)], env=dict(ENVIRONMENT, RANK="0", WORLD_SIZE="2"), capture_output=True, text=True)
    assert refused.returncode == 2 and "torchrun" in the_error(refused.stderr), refused.stderr
    one = Ranks(2, "plan", "population", "--devices", "cpu", only=[0]).wait(60)
    assert one[0][2] == 2 and "one process" in the_error(one[0][1]), one
    alone_in_python = Ranks(1, *job[:-2], "--run-dir", folder / "python").must_succeed()
    assert "test accuracy" in alone_in_python[0][0]


def torchrun_restarts(folder):
    """A rank that is killed is started again with the others by torchrun, and the run goes on to its end."""
    job = [*POPULATION, "--lanes", 4, "--epochs", 12, "--devices", "cpu"]
    alone(*job, "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    run_dir = folder / "run"
    process = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "1", "--master-port", str(free_port()),
         "-m", "espalier", *map(str, job), "--run-dir", str(run_dir), "--checkpoint-minutes", "0", "--rank-limit", str(LIMIT)],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    path = run_dir / "metrics.jsonl"
    while not path.exists() or path.read_text().count("\n") < 8:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    workers = [pid for pid in children_of(process.pid) if "espalier" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert len(workers) == 2, workers
    os.kill(RANDOM.choice(workers), signal.SIGKILL)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    must_be_alike(run_dir, results(folder / "whole"))
    assert len(json.loads((run_dir / "environment.json").read_text())["sessions"]) == 2
    assert "cannot be reached" in errors or "is gone" in errors or "has not been heard" in errors, errors


def children_of(pid):
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def launchers_are_understood(_folder):
    """Ranks and addresses as torchrun, mpirun and Slurm tell them."""
    sys.path.insert(0, str(PACKAGE))
    from espalier.launch import LaunchError, first_host, launch_in

    assert launch_in({}).size == 1
    torchrun = launch_in({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "a", "MASTER_PORT": "5",
                          "TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "2"})
    assert (torchrun.rank, torchrun.local_rank, torchrun.size, torchrun.store_address) == (3, 1, 4, "a:5"), torchrun
    assert torchrun.agent_keeps_store and torchrun.attempt == 2
    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    assert (launch_in(mpi).rank, launch_in(mpi).size, launch_in(mpi).address) == (1, 2, "127.0.0.1")
    slurm = launch_in({"SLURM_PROCID": "5", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "8", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "41234",
                       "SLURM_STEP_NODELIST": "gpu[03-04,07]"})
    assert (slurm.rank, slurm.local_rank, slurm.size, slurm.store_address) == (5, 1, 8, "gpu03:21234"), slurm
    assert launch_in({"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "8"}).size == 1, "a batch script is one process"
    assert [first_host(nodes) for nodes in ("n1", "n1,n2", "a[3,5-6]-ib", "b-[001-128]")] == ["n1", "n1", "a3-ib", "b-001"]
    for environment, word in (({"RANK": "x", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "RANK"), ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
                              ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "a"}, "rank 2"), (dict(mpi, OMPI_COMM_WORLD_LOCAL_SIZE="1"), "MASTER_ADDR")):
        try:
            launch_in(environment)
        except LaunchError as error:
            assert word in str(error), error
        else:
            raise AssertionError(f"{environment} was taken")


def the_library_is_found(folder):
    """Where `cmake --install` puts it, in a build beside the package, and where ESPALIER_LIBRARY says; else one sentence."""
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "ESPALIER_LIBRARY"}
    for place in ("usr/lib", "usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/share/espalier/build/release", None):
        shutil.rmtree(folder / "usr", ignore_errors=True)
        package = folder / "usr/share/espalier/python/espalier"
        shutil.copytree(PACKAGE / "espalier", package)
        if place:
            (folder / place).mkdir(parents=True)
            (folder / place / LIBRARY.name).symlink_to(LIBRARY)
        code = "import espalier.__main__ as main; print(main.library_path())"
        done = subprocess.run([sys.executable, "-c", code], env=dict(environment, PYTHONPATH=str(package.parent)), capture_output=True, text=True)
        assert (done.stdout.strip() == str(folder / place / LIBRARY.name)) if place else ("LaunchError" in done.stderr), done
    nowhere = subprocess.run([sys.executable, "-m", "espalier", "--version"], env=dict(environment, PYTHONPATH=str(package.parent)),
                             capture_output=True, text=True)
    assert nowhere.returncode == 1 and "ESPALIER_LIBRARY" in the_error(nowhere.stderr), nowhere.stderr


def main():
    if os.environ.get("ESPALIER_SANITIZE"):
        print("skipped: Python cannot load instrumented code")
        return
    wanted = sys.argv[2:]
    print(f"seed {SEED}")
    for drill in (launchers_are_understood, the_library_is_found, lanes_do_not_feel_where_they_run, one_pass_is_shared_out_over_all_ranks,
                  resumed_with_another_number_of_ranks, a_policy_learns_the_same_over_ranks, comparisons_are_the_same_over_ranks,
                  a_linet_is_trained_by_ranks_together, a_rank_of_a_linet_is_killed, a_rank_is_killed, a_rank_is_stopped, ranks_that_do_not_meet, ranks_that_differ, torchrun_restarts):
        if wanted and drill.__name__ not in wanted:
            continue
        began = time.monotonic()
        folder = Path(tempfile.mkdtemp(prefix="espalier_ranks_"))
        try:
            drill(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(f"{drill.__name__}: passed in {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
