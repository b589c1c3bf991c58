"""The process group of a job, made by torch.distributed; C++ finds it by its name."""

import datetime

import torch
import torch.distributed as dist

from espalier.launch import LaunchError


def backend_for(name):
    """What the user names; else NCCL between GPUs beside Gloo for what lies in host memory."""
    if name != "auto":
        return name
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"


def open_store(launch, limit):
    keeps = launch.rank == 0 and not launch.agent_keeps_store
    keeper = "torchrun's agent" if launch.agent_keeps_store else "rank 0"
    try:
        store = dist.TCPStore(launch.address, launch.port, launch.size, is_master=keeps, timeout=limit, wait_for_workers=False)
    except (RuntimeError, ValueError) as error:
        what = "cannot keep a store" if keeps else f"nobody answers within {limit.total_seconds():g} s"
        raise LaunchError(f"rank {launch.rank}: {what} at {launch.store_address}, where {keeper} should: {first_line(error)}; "
                          "check MASTER_ADDR and MASTER_PORT, and that rank 0 was started there") from None
    return dist.PrefixStore(f"espalier/attempt{launch.attempt}", store)


def wait_for_all(store, launch, limit):
    """Every rank is named, so that those which did not come are."""
    store.set(f"here/{launch.rank}", "1")
    keys = [f"here/{rank}" for rank in range(launch.size)]
    try:
        store.wait(keys, limit)
    except RuntimeError:
        missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
        raise LaunchError(f"rank {launch.rank}: of {launch.size} ranks {len(missing)} did not come to {launch.store_address} within "
                          f"{limit.total_seconds():g} s: rank {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}") from None


def join(launch, backend, limit_seconds):
    """Returns the group's name."""
    limit = datetime.timedelta(seconds=limit_seconds)
    store = open_store(launch, limit)
    wait_for_all(store, launch, limit)
    name = backend_for(backend)
    if torch.cuda.is_available():
        torch.cuda.set_device(launch.local_rank % torch.cuda.device_count())
    try:
        dist.init_process_group(name, store=store, rank=launch.rank, world_size=launch.size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise LaunchError(f"rank {launch.rank}: --backend {name}: {first_line(error)}") from None
    return dist.group.WORLD.group_name


def first_line(error):
    return str(error).strip().split("\n")[0]
