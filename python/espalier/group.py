"""The process group of a job, made by torch.distributed; C++ finds it by its name."""

import datetime
import fcntl
import ipaddress
import os
import secrets
import socket
import struct
import threading
import time

import torch
import torch.distributed as dist

from espalier.launch import LaunchError, first_line

SIOCGIFADDR = 0x8915  # Linux: an interface's address
A_WHILE = datetime.timedelta(seconds=0.5)  # after which a rank looks whether another start is named
GRACE = 2  # seconds for ranks that give up at the same moment to hear of one another


def backend_for(name):
    """What the user names; else NCCL between GPUs beside Gloo for what lies in host memory."""
    if name != "auto":
        return name
    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"


def keeper_of(launch):
    return "torchrun's agent" if launch.agent_keeps_store else "rank 0"


def within(seconds, launch, work):
    """What `work` returns or throws. c10d waits for some of a store's answers without a limit: one whose keeper is stopped, or that is
    another service with nothing to say, would hold a rank for ever."""
    outcome = []

    def run():
        try:
            outcome.append((work(), None))
        except Exception as error:
            outcome.append((None, error))

    worker = threading.Thread(target=run, daemon=True)  # nobody waits for it where it hangs
    worker.start()
    worker.join(seconds)
    if not outcome:
        raise LaunchError(f"rank {launch.rank}: the store at {launch.store_address}, where {keeper_of(launch)} should keep it, has not answered for "
                          f"{seconds:g} s; check that MASTER_ADDR and MASTER_PORT name no other service, and that {keeper_of(launch)} was not stopped")
    result, error = outcome[0]
    if error:
        raise error
    return result


def open_store(launch, limit):
    keeps = launch.rank == 0 and not launch.agent_keeps_store
    port = 0 if keeps and launch.size == 1 else launch.port  # nobody else comes: any that is free

    def connect():
        return dist.TCPStore(launch.address, port, launch.size, is_master=keeps, timeout=limit, wait_for_workers=False)

    try:
        store = within(limit.total_seconds() + GRACE, launch, connect)
    except (RuntimeError, ValueError) as error:
        what = "cannot keep a store" if keeps else f"nobody answers within {limit.total_seconds():g} s"
        raise LaunchError(f"rank {launch.rank}: {what} at {launch.store_address}, where {keeper_of(launch)} should: {first_line(error)}; "
                          "check MASTER_ADDR and MASTER_PORT, and that rank 0 was started there") from None
    return dist.PrefixStore(f"espalier/{launch.job}", store)


def is_loopback(host):
    """Whether a name leads to this machine alone, or nowhere."""
    try:
        return ipaddress.ip_address(socket.gethostbyname(host)).is_loopback
    except OSError:
        return True


def address_towards(host):
    """This machine's own address on the way to another one; nothing is sent."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, 9))
            return probe.getsockname()[0]
    except OSError:
        return "127.0.0.1"


def interface_with(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                found = fcntl.ioctl(asked, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # it has no address
                continue
            if socket.inet_ntoa(found[20:24]) == address:
                return name
    return None


def choose_interface(own, outside):
    """Gloo listens where this machine's own name leads. Where that is the loopback (Debian writes 127.0.1.1 into /etc/hosts), ranks
    elsewhere could not come: it is told the interface that leads to them."""
    if not outside or "GLOO_SOCKET_IFNAME" in os.environ or not is_loopback(socket.gethostname()):
        return
    if name := interface_with(address_towards(outside) if is_loopback(own) else own):
        os.environ["GLOO_SOCKET_IFNAME"] = name


def receive(store, launch, limit, own):
    """Rank 0: names this start, waits for all ranks, and lets them in with an address by which another machine is reached, if there is one."""
    start = secrets.token_hex(8)
    store.set("start", start)
    keys = here_keys(start, launch)
    try:
        if keys:
            store.wait(keys, limit)
    except dist.DistStoreError:
        raise did_not_come(store, start, launch, limit) from None
    came = [word.decode().split() for word in store.multi_get(keys)] if keys else []
    outside = next((address for address in [own, *(address for _, address in came)] if not is_loopback(address)), "")
    if came:
        store.multi_set([f"{start}/in/{ticket}" for ticket, _ in came], [outside] * len(came))
    return start, outside


def come(store, launch, limit, own):
    """The other ranks: each comes to the start that is named, until it is let in. One that is over lets nobody in."""
    ticket, start = secrets.token_hex(8), ""
    end = time.monotonic() + limit.total_seconds()
    while time.monotonic() < end:
        try:
            store.wait(["start"], A_WHILE)
            start = store.get("start").decode()
            store.set(f"{start}/here/{launch.rank}", f"{ticket} {own}")
            store.wait([f"{start}/in/{ticket}"], A_WHILE)
            return start, store.get(f"{start}/in/{ticket}").decode()
        except dist.DistStoreError:  # not yet
            continue
    raise did_not_come(store, start, launch, limit)


def here_keys(start, launch):
    return [f"{start}/here/{rank}" for rank in range(1, launch.size)]


def did_not_come(store, start, launch, limit):
    missing = [str(rank) for rank, key in enumerate(here_keys(start, launch), 1) if not store.check([key])] or ["0"]
    return LaunchError(f"rank {launch.rank}: of {launch.size} ranks {len(missing)} did not come to {launch.store_address} within "
                       f"{limit.total_seconds():g} s: rank {', '.join(missing[:8])}{', ...' if len(missing) > 8 else ''}")


def meet(store, launch, limit):
    """A store for the ranks of this very start. What earlier ones said is still in a store that torchrun's agents keep, and their counts of
    restarts differ from machine to machine (github.com/pytorch/pytorch/issues/108158)."""
    own = address_towards(launch.address)
    try:
        start, outside = within(limit.total_seconds() + GRACE, launch, lambda: (come if launch.rank else receive)(store, launch, limit, own))
    except dist.DistNetworkError as error:
        raise LaunchError(f"rank {launch.rank}: {launch.store_address} went away before all ranks had come: {first_line(error)}") from None
    choose_interface(own, outside)
    return dist.PrefixStore(start, store)


def join(launch, backend, limit_seconds):
    """Returns the group's name."""
    limit = datetime.timedelta(seconds=limit_seconds)
    store = meet(open_store(launch, limit), launch, limit)
    name = backend_for(backend)
    use_own_device(launch)
    make_group(name, store, launch, limit)
    return dist.group.WORLD.group_name


def use_own_device(launch):
    """Holds for the calling thread."""
    if torch.cuda.is_available():
        torch.cuda.set_device(launch.local_rank % torch.cuda.device_count())


def make_group(name, store, launch, limit):
    """Gloo waits five times its limit for a rank that does not get through, so each tells the others when it gives up."""
    seconds, failures = limit.total_seconds(), []

    def make():
        try:
            use_own_device(launch)
            dist.init_process_group(name, store=store, rank=launch.rank, world_size=launch.size, timeout=limit)
        except Exception as error:
            hint = "; GLOO_SOCKET_IFNAME names the interface by which machines reach one another" if "gloo" in name else ""
            failures.append(f"--backend {name}: {first_line(error)}{hint}")

    def watch():
        """What failed, if anything did."""
        told, failed = store.clone(), ""
        making = threading.Thread(target=make, daemon=True)
        making.start()
        end = time.monotonic() + seconds + GRACE
        while not failed and (making.is_alive() or failures):
            making.join(0.1)
            if time.monotonic() > end:
                failures.append(f"--backend {name}: not all ranks were connected to one another within {seconds:g} s")
            if failures:
                told.compare_set("failed", "", f"rank {launch.rank} failed: {failures[0]}")
            if told.check(["failed"]):
                failed = told.get("failed").decode()
                leave(told, launch)
        return failed

    try:
        failed = within(seconds + 3 * GRACE, launch, watch)
    except dist.DistNetworkError as error:
        raise LaunchError(f"rank {launch.rank}: {launch.store_address} went away before all ranks were connected: {first_line(error)}") from None
    if failed:
        raise LaunchError(f"rank {launch.rank}: {failures[0]}" if failures else failed)


def leave(store, launch):
    """The rank that keeps the store goes last, so that all have heard."""
    left, end = store.add("left", 1), time.monotonic() + GRACE
    while launch.rank == 0 and not launch.agent_keeps_store and left < launch.size and time.monotonic() < end:
        time.sleep(0.02)
        left = store.add("left", 0)
