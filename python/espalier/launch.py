"""Who started this process, and as which of how many: torchrun, mpirun (Open MPI) or Slurm's srun, by their environment.

No torch here: it is imported once the environment is settled.
"""

import dataclasses
import os
import re
import zlib

DEFAULT_PORT = 29500


class LaunchError(Exception):
    """One sentence for the user."""


def first_line(error):
    """c10d's messages go on with a stack."""
    return str(error).strip().split("\n")[0]


@dataclasses.dataclass(frozen=True)
class Launch:
    rank: int = 0
    local_rank: int = 0
    size: int = 1
    address: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    agent_keeps_store: bool = False  # torchrun's agent does, and not rank 0
    job: str = ""  # its launcher's name of it: jobs that meet at one store do not mix

    @property
    def store_address(self):
        return f"{self.address}:{self.port}"


def number(environment, name):
    try:
        return int(environment[name])
    except ValueError:
        raise LaunchError(f"{name}: want a whole number, got '{environment[name]}'") from None


def first_host(nodes):
    """The first of Slurm's list of nodes: "a[03-07,12]-ib,b1" gives "a03-ib"."""
    found = re.match(r"([^,\[]+)(?:\[([^\]]+)\])?([^,]*)", nodes)
    if not found:
        raise LaunchError(f"the list of nodes '{nodes}' names none: set MASTER_ADDR")
    head, inside, tail = found.groups()
    return head + (re.split(r"[,-]", inside)[0] if inside else "") + tail


def port_for(job):
    """So that two jobs on one machine do not meet; below the ports that Linux gives to outgoing connections."""
    return 20000 + job % 12000


def in_range(launch):
    if not (launch.size >= 1 and 0 <= launch.rank < launch.size):
        raise LaunchError(f"rank {launch.rank} of {launch.size}: want a rank below the number of ranks")
    if not 0 < launch.port < 65536:
        raise LaunchError(f"MASTER_PORT: want 1 to 65535, got {launch.port}")
    return launch


def from_torchrun(environment):
    size = number(environment, "WORLD_SIZE")
    if size > 1 and "MASTER_ADDR" not in environment:
        raise LaunchError(f"WORLD_SIZE is {size}, and MASTER_ADDR is not set: name the machine of rank 0")
    return dict(rank=number(environment, "RANK"), local_rank=number(environment, "LOCAL_RANK") if "LOCAL_RANK" in environment else 0,
                size=size, agent_keeps_store=environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True")


def from_mpirun(environment):
    size = number(environment, "OMPI_COMM_WORLD_SIZE")
    found = dict(rank=number(environment, "OMPI_COMM_WORLD_RANK"), local_rank=number(environment, "OMPI_COMM_WORLD_LOCAL_RANK"), size=size)
    if environment.get("OMPI_COMM_WORLD_LOCAL_SIZE") != str(size) and "MASTER_ADDR" not in environment:
        raise LaunchError("mpirun started ranks on several machines, and MASTER_ADDR is not set: give the machine of rank 0, "
                          "as in mpirun -x MASTER_ADDR=node1")
    if job := environment.get("PMIX_NAMESPACE"):
        found.update(job=job, port=port_for(zlib.crc32(job.encode())))
    return found


def from_slurm(environment):
    # A step's own numbers: a batch script by itself is one process, whatever --ntasks says.
    found = dict(rank=number(environment, "SLURM_PROCID"), local_rank=number(environment, "SLURM_LOCALID"),
                 size=number(environment, "SLURM_STEP_NUM_TASKS"))
    if nodes := environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST"):
        found["address"] = first_host(nodes)
    if "SLURM_JOB_ID" in environment:
        job = number(environment, "SLURM_JOB_ID")
        step = number(environment, "SLURM_STEP_ID") if "SLURM_STEP_ID" in environment else 0
        found.update(job=f"{job}.{step}", port=port_for(job + 1009 * step))  # steps of one job may run at once, too
    return found


def launch_in(environment=os.environ):
    """The first of these that is there; one process where none is."""
    if "RANK" in environment and "WORLD_SIZE" in environment:
        found = from_torchrun(environment)
    elif "OMPI_COMM_WORLD_SIZE" in environment:
        found = from_mpirun(environment)
    elif "SLURM_STEP_NUM_TASKS" in environment and "SLURM_PROCID" in environment:
        found = from_slurm(environment)
    elif "PMI_SIZE" in environment and number(environment, "PMI_SIZE") > 1:
        raise LaunchError(f"PMI_SIZE is {environment['PMI_SIZE']}: the mpirun or mpiexec of another MPI than Open MPI is not understood, and each of its "
                          "processes would do the whole job: start ranks by torchrun or Open MPI, or set RANK, WORLD_SIZE, LOCAL_RANK and MASTER_ADDR")
    else:
        return Launch()
    if "MASTER_ADDR" in environment:
        found["address"] = environment["MASTER_ADDR"]
    if "MASTER_PORT" in environment:
        found["port"] = number(environment, "MASTER_PORT")
    return in_range(Launch(**found))
