"""Ranks that mpirun itself starts, where Open MPI is installed; what is made of launchers' variables and of machines' names; how ranks meet."""

import datetime
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from rank_processes import ENVIRONMENT, PACKAGE, alone, must_be_alike, patience, results, run_drills, wait_for_lines

POPULATION = ["train", "population", "--host", "tiny", "--synthetic-train", "120", "--synthetic-test", "40", "--synthetic-size", "8x8", "--crop-pad", "1",
              "--batch", "12", "--controller", "random", "--embargo", "1", "--gate-training-steps", "1", "--threads", "1", "--devices", "cpu"]
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", *(["--allow-run-as-root"] if os.getuid() == 0 else [])]


class Mpirun:
    """A job of mpirun's, in the shape of Ranks: one process, which speaks for all."""

    def __init__(self, size, *arguments):
        self.process = subprocess.Popen([*MPIRUN, "-np", str(size), sys.executable, "-m", "espalier", *map(str, arguments)], env=ENVIRONMENT,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes = {"of mpirun": self.process}

    def wait(self):
        try:
            output, errors = self.process.communicate(timeout=120 * patience())
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.communicate()
        assert "\033" not in output + errors, "a live view was drawn into a pipe"
        return output, errors, self.process.returncode


def lacks_mpirun():
    """Why mpirun cannot be tried here, or nothing."""
    if not shutil.which("mpirun"):
        return "there is no mpirun"
    probe = subprocess.run([*MPIRUN, "-np", "2", "true"], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    version = subprocess.run(["mpirun", "--version"], env=ENVIRONMENT, capture_output=True, text=True, timeout=60).stdout
    if "Open MPI" not in version:
        return "mpirun is not Open MPI's"
    return "mpirun does not work here" if probe.returncode != 0 else None


def mpirun_starts_ranks(folder):
    """Two jobs at once, which do not meet; both leave the files of one process."""
    if why := lacks_mpirun():
        print(f"  skipped: {why}")
        return
    job = [*POPULATION, "--lanes", 5, "--epochs", 3]
    alone(*job, "--run-dir", folder / "one")
    jobs = [Mpirun(size, *job, "--run-dir", folder / f"of_{size}") for size in (2, 3)]
    for started in jobs:
        output, errors, code = started.wait()
        assert code == 0 and "test accuracy" in output, errors
    for size in (2, 3):
        must_be_alike(folder / f"of_{size}", results(folder / "one"))


def mpirun_passes_a_signal_on(folder):
    """SIGUSR1 to mpirun ends all ranks with a checkpoint."""
    if why := lacks_mpirun():
        print(f"  skipped: {why}")
        return
    started = Mpirun(2, *POPULATION, "--lanes", 4, "--epochs", 100000, "--checkpoint-minutes", 1000, "--run-dir", folder / "run")
    wait_for_lines(started, folder / "run", 12)
    started.process.send_signal(signal.SIGUSR1)
    output, errors, code = started.wait()
    assert code == 143 and "to go on" in output + errors, (code, output, errors)
    results(folder / "run")


def jobs_and_steps_are_told_apart(_folder):
    """Jobs of mpirun, and steps of one Slurm job, have a port and a name of their own; MASTER_PORT holds for all."""
    from espalier.launch import launch_in

    mpi = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
    slurm = {"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7", "SLURM_STEP_NODELIST": "n[1-2]"}
    for one, other in ((dict(mpi, PMIX_NAMESPACE="1136132097"), dict(mpi, PMIX_NAMESPACE="prterun-n1-4711@1")),
                       (dict(slurm, SLURM_STEP_ID="0"), dict(slurm, SLURM_STEP_ID="1"))):
        assert launch_in(one).port != launch_in(other).port and launch_in(one).job != launch_in(other).job, (one, other)
        assert launch_in(dict(one, MASTER_PORT="5")).port == 5


def a_start_that_is_over_lets_nobody_in(_folder):
    """Ranks meet in a store where an earlier start's words still are, whichever of them comes first; one that does not come is named by all."""
    import torch.distributed as dist
    from espalier import group
    from espalier.launch import Launch, LaunchError

    keeper = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)

    def rank_in(rank, size, delay, limit):
        time.sleep(delay)
        client = dist.TCPStore("127.0.0.1", keeper.port, wait_for_workers=False)
        try:
            store = group.meet(client, Launch(rank, 0, size, "127.0.0.1", keeper.port), datetime.timedelta(seconds=limit))
        except LaunchError as error:
            return str(error)
        store.set(f"own {rank}", "here")
        return store

    def start(size, delays, limit=60):
        with ThreadPoolExecutor(len(delays)) as threads:
            return [found.result() for found in [threads.submit(rank_in, rank, size, delay, limit) for rank, delay in delays.items()]]

    for delays in ({0: 0, 1: 0, 2: 0}, {0: 0.7, 1: 0, 2: 0.3}, {0: 0, 1: 0.7, 2: 0}):
        stores = start(3, delays)
        for store in stores:
            store.wait([f"own {rank}" for rank in range(3)], datetime.timedelta(seconds=60))
            assert not store.check(["earlier"]), "two starts have one store"
        stores[0].set("earlier", "")
    assert all("rank 2" in said and "did not come" in said for said in start(3, {0: 0, 1: 0}, limit=2))
    assert "rank 0" in start(2, {1: 0}, limit=2)[0]


def torch_is_told_before_it_is_loaded(_folder):
    """That waiting threads spin briefly, and that ranks are ended by espalier's sentence and not by NCCL's watchdog; what a user says holds."""
    from espalier.__main__ import settle

    told = {"TORCH_NCCL_ENABLE_MONITORING": "1", "OMPI_COMM_WORLD_SIZE": "2", "TERM": "xterm"}
    settle(told)
    assert told["TORCH_NCCL_ASYNC_ERROR_HANDLING"] == "0" and told["TORCH_NCCL_ENABLE_MONITORING"] == "1", told
    assert told["GOMP_SPINCOUNT"] == "10000" and told["TERM"] == "dumb", told
    passive = {"OMP_WAIT_POLICY": "passive"}
    settle(passive)
    assert "GOMP_SPINCOUNT" not in passive and "TERM" not in passive and passive["TORCH_NCCL_ENABLE_MONITORING"] == "0", passive


def whatever_fails_is_one_sentence(_folder):
    """c10d's messages go on with a stack of C++."""
    from espalier import group
    from espalier.__main__ import joined
    from espalier.launch import Launch

    def fail(*_):
        raise RuntimeError("Unknown backend\nException raised from somewhere\nframe #0: ...")

    true_join, group.join = group.join, fail
    try:
        assert joined(Launch(rank=1, size=2), "auto", 5) == ("rank 1: RuntimeError: Unknown backend", 1)
    finally:
        group.join = true_join


KEEPER = """import sys, torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()"""


def a_store_that_falls_silent_is_named(_folder):
    """Its keeper is stopped once ranks are connected to it: c10d alone would wait for ever, while they meet and while the group is made. One
    that is killed is said to have gone away."""
    import torch.distributed as dist
    from espalier import group
    from espalier.launch import Launch, LaunchError

    limit = datetime.timedelta(seconds=1)

    def said_by(work):
        outcome = []

        def run():
            try:
                outcome.append(work())
            except LaunchError as error:
                outcome.append(str(error))

        waiting = threading.Thread(target=run, daemon=True)
        waiting.start()
        waiting.join(20 * patience())
        assert outcome, "it waits for ever"
        return outcome[0]

    for end, words in ((signal.SIGSTOP, "has not answered"), (signal.SIGKILL, "went away before")):
        keeper = subprocess.Popen([sys.executable, "-c", KEEPER], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            port = int(keeper.stdout.readline())
            stores = [dist.TCPStore("127.0.0.1", port, timeout=limit, wait_for_workers=False) for _ in range(3)]
            keeper.send_signal(end)
            launches = [Launch(rank, 0, 2, "127.0.0.1", port, agent_keeps_store=True) for rank in (0, 1)]
            for work in (lambda: group.meet(stores[0], launches[0], limit), lambda: group.meet(stores[1], launches[1], limit),
                         lambda: group.make_group("gloo", stores[2], launches[1], limit)):
                said = said_by(work)
                assert words in said and f"127.0.0.1:{port}" in said, said
        finally:
            keeper.kill()
            keeper.communicate()


def other_machines_are_reached(_folder):
    """Where this machine's own name leads to the loopback, Gloo is told the interface that leads to the others; else it is left alone."""
    from espalier import group

    assert group.interface_with("127.0.0.1") == "lo"
    own = group.address_towards("192.0.2.9")  # an address of nobody: nothing is sent
    if group.is_loopback(own):
        print("  skipped: this machine has no address but the loopback's")
        return
    true_name = socket.gethostname
    try:
        for name, towards_store, outside, expected in (("localhost", own, own, group.interface_with(own)),
                                                       ("localhost", "127.0.0.1", own, group.interface_with(own)),
                                                       ("localhost", "127.0.0.1", "", None),
                                                       (own, own, "192.0.2.9", None)):
            socket.gethostname = lambda name=name: name
            os.environ.pop("GLOO_SOCKET_IFNAME", None)
            group.choose_interface(towards_store, outside)
            assert os.environ.get("GLOO_SOCKET_IFNAME") == expected, (name, towards_store, outside, os.environ.get("GLOO_SOCKET_IFNAME"))
    finally:
        socket.gethostname = true_name


if __name__ == "__main__":
    sys.path.insert(0, str(PACKAGE))
    os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    run_drills(jobs_and_steps_are_told_apart, torch_is_told_before_it_is_loaded, whatever_fails_is_one_sentence, other_machines_are_reached,
               a_start_that_is_over_lets_nobody_in, a_store_that_falls_silent_is_named, mpirun_starts_ranks, mpirun_passes_a_signal_on)
