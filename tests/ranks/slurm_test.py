"""Ranks that Slurm starts, where it is installed (slurm-wlm): a cluster of two machines, which are network namespaces of this one."""

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from machines import Machines, run_apart
from rank_processes import ENVIRONMENT, PACKAGE, alone, must_be_alike, results, run_drills

POPULATION = ["train", "population", "--host", "tiny", "--synthetic-train", "120", "--synthetic-test", "40", "--synthetic-size", "8x8", "--crop-pad", "1",
              "--batch", "12", "--controller", "random", "--embargo", "1", "--gate-training-steps", "1", "--threads", "1", "--devices", "cpu", "--lanes", "5"]
# No authentication, no cgroups, no limits; a job that is queued again waits for some seconds instead of two minutes.
CONFIGURATION = """ClusterName=test
SlurmctldHost={first}
SlurmUser=root
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=1,sched_interval=1
SlurmdParameters=config_overrides
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
NodeName={nodes} CPUs=4
PartitionName=all Nodes=ALL Default=YES
"""


class Cluster:
    """Slurm on machines; commands are given at the first of them."""

    def __init__(self, folder, machines):
        self.folder, self.first, self.daemons = folder, machines[0], []
        configuration = folder / "slurm.conf"
        names = [machine.name for machine in machines]
        configuration.write_text(CONFIGURATION.format(first=names[0], folder=folder, nodes=",".join(names)))
        for own in ("state", *(f"spool.{name}" for name in names)):
            (folder / own).mkdir()
        self.environment = dict(ENVIRONMENT, SLURM_CONF=str(configuration))
        for machine, *command in ((self.first, "slurmctld", "-D", "-c"), *((machine, "slurmd", "-D", "-N", machine.name) for machine in machines)):
            with open(folder / f"{command[0]}.{machine.name}.log", "w") as log:
                self.daemons.append(subprocess.Popen([*machine.enter, *command], env=self.environment, stdout=log, stderr=log))
        self.wait_until(lambda: self.ask("sinfo", "--noheader", "--format", "%t") == "idle", "the machines are idle")

    def ask(self, *command):
        done = subprocess.run([*self.first.enter, *map(str, command)], env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=60)
        return done.stdout.strip()

    def wait_until(self, holds, what):
        end = time.monotonic() + 120
        while not holds():
            assert time.monotonic() < end, f"{what}: not after 120 s; {self.said()}"
            time.sleep(0.1)

    def said(self):
        return "\n".join(f"{path.name}: {path.read_text()[-2000:]}" for path in sorted(self.folder.glob("*.log")))

    def run_batch(self, script, *options):
        """Returns the job's number."""
        path = self.folder / "job.sh"
        path.write_text(script)
        return self.ask("sbatch", "--parsable", "--output", self.folder / "job.log", *options, path)

    def wait_for(self, job):
        self.wait_until(lambda: self.ask("squeue", "--noheader", "--jobs", job, "--states", "all", "--format", "%T") not in
                        ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED", "SUSPENDED"), "the job has ended")
        state = self.ask("scontrol", "show", "job", job)
        assert "JobState=COMPLETED" in state, f"{state}\n{self.said()}"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()


def command_line(*arguments):
    return " ".join([sys.executable, "-m", "espalier", *map(str, arguments)])


def steps_of_one_job_do_not_meet(folder):
    """Two at once, over two machines each: both leave the files of one process."""
    job = [*POPULATION, "--epochs", 3]
    alone(*job, "--run-dir", folder / "one")
    with Machines(folder, "node1", "node2") as machines, Cluster(folder, machines) as cluster:
        steps = [f"srun --overlap {command_line(*job, '--run-dir', folder / name)} & pids+=($!)" for name in ("left", "right")]
        cluster.wait_for(cluster.run_batch("\n".join(["#!/bin/bash", *steps, 'for pid in "${pids[@]}"; do wait $pid || exit 1; done']), "--nodes=2",
                                           "--ntasks-per-node=1"))
    for name in ("left", "right"):
        must_be_alike(folder / name, results(folder / "one"))


def the_documented_script_goes_on(folder):
    """docs/scaling.md's, in small: a signal as before the end of its time ends it with a checkpoint; it is queued again, and goes on to its end."""
    text = (PACKAGE.parent / "docs" / "scaling.md").read_text()
    script, = re.findall(r"```sh\n(#!/bin/bash\n#SBATCH.*?)```", text, re.S)
    job = [*POPULATION, "--epochs", 60]
    alone(*job, "--run-dir", folder / "whole", "--checkpoint-minutes", 1000)
    script, found = re.subn(r"python3 -m espalier .*", command_line(*job, "--run-dir", folder / "run", "--checkpoint-minutes", 1000), script)
    assert found == 1, script
    script = re.sub(r"export PYTHONPATH=.*\n", "", script)
    metrics = folder / "run" / "metrics.jsonl"
    with Machines(folder, "node1", "node2") as machines, Cluster(folder, machines) as cluster:
        number = cluster.run_batch(script, "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=0")
        cluster.wait_until(lambda: metrics.exists() and metrics.read_text().count("\n") > 20, "the run is under way")
        cluster.ask("scancel", "--signal=USR1", number)
        cluster.wait_for(number)
    must_be_alike(folder / "run", results(folder / "whole"))
    sessions = json.loads((folder / "run" / "environment.json").read_text())["sessions"]
    assert [bool(session["resumed"]) for session in sessions] == [False, True], sessions


if __name__ == "__main__":
    lacking = [tool for tool in ("slurmctld", "slurmd", "srun", "sbatch") if not shutil.which(tool)]
    if why := f"there is no {lacking[0]} (slurm-wlm)" if lacking else run_apart():
        print(f"skipped: {why}")
    else:
        run_drills(steps_of_one_job_do_not_meet, the_documented_script_goes_on)
