"""One job on several machines, which are network namespaces of this one: the same bits, faults between them, restarts by torchrun."""

import json
import os
import signal
import sys
import time

from launchers_test import MPIRUN, lacks_mpirun
from machines import Machines, run_apart
from rank_processes import (ENVIRONMENT, LIMIT, Ranks, alone, children_of, must_be_alike, must_name, patience, results, run_drills, the_error,
                            wait_for_lines)

DATA = ["--synthetic-train", "120", "--synthetic-test", "40", "--synthetic-size", "8x8", "--crop-pad", "1", "--threads", "1"]
POPULATION = ["train", "population", *DATA, "--host", "tiny", "--batch", "12", "--controller", "random", "--embargo", "1", "--gate-training-steps", "1",
              "--devices", "cpu", "--lanes", "4"]
HOST = ["train", "host", *DATA, "--batch", "12", "--device", "cpu", "--sync-norm", "--epochs", "1"]
MAIN = [sys.executable, "-m", "espalier"]


class Spread(Ranks):
    """One rank on each machine, by RANK, WORLD_SIZE and the name of the first."""

    def __init__(self, machines, *arguments, **variables):
        self.processes = {}
        for rank, machine in enumerate(machines):
            environment = dict(ENVIRONMENT, RANK=str(rank), WORLD_SIZE=str(len(machines)), MASTER_ADDR=machines[0].name, MASTER_PORT="29500", **variables)
            self.processes[rank] = machine.start(*MAIN, *arguments, env=environment)


class Torchrun(Ranks):
    """An agent on each machine, with so many ranks each."""

    def __init__(self, machines, each, *arguments):
        agent = [sys.executable, "-m", "torch.distributed.run", "--nnodes", len(machines), "--nproc-per-node", each, "--rdzv-backend", "c10d",
                 "--rdzv-endpoint", f"{machines[0].name}:29400", "--max-restarts", 1, "-m", "espalier"]
        self.processes = {place: machine.start(*agent, *arguments, env=ENVIRONMENT) for place, machine in enumerate(machines)}


def machines_leave_the_files_of_one(folder):
    """A population over three machines as in one process; a network over two as with two ranks on one."""
    job = [*POPULATION, "--epochs", 3]
    alone(*job, "--run-dir", folder / "one")
    Ranks(2, *HOST, "--run-dir", folder / "host_of_2").must_succeed()
    with Machines(folder, "node1", "node2", "node3") as machines:
        Spread(machines, *job, "--run-dir", folder / "spread").must_succeed()
        Spread(machines[1:], *HOST, "--run-dir", folder / "host_spread").must_succeed()
    must_be_alike(folder / "spread", results(folder / "one"))
    must_be_alike(folder / "host_spread", results(folder / "host_of_2"))


def a_link_goes_down(folder):
    """Each side names the other within the limit; once the link is back the same command goes on to the end of one process."""
    job = [*POPULATION, "--epochs", 30, "--rank-limit", LIMIT]
    alone(*job, "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    run = [*job, "--run-dir", folder / "run"]
    with Machines(folder, "node1", "node2") as machines:
        ranks = Spread(machines, *run, "--checkpoint-minutes", 0)
        wait_for_lines(ranks, folder / "run", 10)
        machines[1].link("down")
        began = time.monotonic()
        for lost in (1, 0):
            took = must_name(ranks, lost, began, folder)
            print(f"  link down: rank {lost} missed after {took:.1f} s")
        machines[1].link("up")
        Spread(machines, *run).must_succeed()
    must_be_alike(folder / "run", results(folder / "whole"))


def a_wrong_interface_is_said(folder):
    """By all ranks within the limit, also by those that only wait for others to connect."""
    job = [*POPULATION, "--epochs", 1, "--rank-limit", LIMIT, "--run-dir", folder / "run"]
    with Machines(folder, "node1", "node2", "node3") as machines:
        began = time.monotonic()
        for rank, (_, errors, code) in Spread(machines, *job, GLOO_SOCKET_IFNAME="lo").wait(60).items():
            assert code == 1 and "GLOO_SOCKET_IFNAME" in the_error(errors), f"rank {rank}: exit {code}: {errors}"
        assert time.monotonic() - began < (2 * LIMIT + 10) * patience()
    assert not (folder / "run").exists(), "nothing is left of a run that did not begin"


def torchrun_restarts_on_all_machines(folder):
    """A rank on the second machine is killed; both agents start theirs again, and the run goes on to its end."""
    job = [*POPULATION, "--epochs", 12]
    alone(*job, "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    with Machines(folder, "node1", "node2") as machines:
        agents = Torchrun(machines, 1, *job, "--run-dir", folder / "run", "--checkpoint-minutes", 0, "--rank-limit", LIMIT)
        wait_for_lines(agents, folder / "run", 10)
        worker, = (pid for pid in children_of(agents.processes[1].pid) if b"espalier" in open(f"/proc/{pid}/cmdline", "rb").read())
        os.kill(worker, signal.SIGKILL)
        agents.must_succeed()
    must_be_alike(folder / "run", results(folder / "whole"))
    assert len(json.loads((folder / "run" / "environment.json").read_text())["sessions"]) == 2


def mpirun_starts_ranks_on_all_machines(folder):
    """Its agent, ssh in other places, enters the other machine."""
    if why := lacks_mpirun():
        print(f"  skipped: {why}")
        return
    job = [*POPULATION, "--epochs", 3]
    alone(*job, "--run-dir", folder / "one")
    with Machines(folder, "node1", "node2") as machines:
        agent = folder / "agent"
        agent.write_text("#!/bin/sh\ncase $1 in\n" + "".join(f"{machine.name}) enter='{' '.join(machine.enter)}';;\n" for machine in machines) +
                         'esac\nshift\nexec $enter sh -c "$*"\n')
        agent.chmod(0o755)
        ranks = Ranks.__new__(Ranks)
        ranks.processes = {"mpirun": machines[0].start(*MPIRUN, "--mca", "plm_rsh_agent", agent, "-H", "node1:2,node2:1", "-np", 3, "-x", "MASTER_ADDR=node1",
                                                       *MAIN, *job, "--run-dir", folder / "run", env=dict(ENVIRONMENT, TMPDIR=str(folder)))}
        ranks.must_succeed()
    must_be_alike(folder / "run", results(folder / "one"))


if __name__ == "__main__":
    if why := run_apart():
        print(f"skipped: {why}")
    else:
        run_drills(machines_leave_the_files_of_one, mpirun_starts_ranks_on_all_machines, a_wrong_interface_is_said,
                   a_link_goes_down, torchrun_restarts_on_all_machines)
