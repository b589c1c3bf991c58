"""Machines as network namespaces of this one: a name, an address and an /etc/hosts of their own, on one switch.

The whole test runs in namespaces of its own, of processes too: however it ends, all of this is gone with it.
"""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

APART = ["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
SWITCH = "ip link set lo up && ip link add switch type bridge && ip link set switch up"
MACHINE = 'hostname "$1" && mount --bind "$2" /etc/hosts && ip link set lo up && echo up && exec cat'
INSIDE = "ESPALIER_TEST_IS_APART"


def run_apart():
    """Starts this test again where it may make machines, and does not return; why it cannot be, where it cannot."""
    if INSIDE in os.environ:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the first process of a namespace heeds no other
        subprocess.run(["sh", "-c", SWITCH], check=True)
        return None
    for tool in ("unshare", "nsenter", "ip"):
        if not shutil.which(tool):
            return f"there is no {tool} (util-linux, iproute2) to make network namespaces with"
    probe = subprocess.run([*APART, "sh", "-c", SWITCH], capture_output=True, text=True, timeout=60)
    if probe.returncode != 0:
        return f"network namespaces cannot be made here: {probe.stderr.strip().splitlines()[-1]}"
    sys.stdout.flush()
    os.environ[INSIDE] = "1"
    os.execvp(APART[0], [*APART, sys.executable, *sys.argv])


class Machine:
    def __init__(self, name, address, hosts):
        self.name = name
        self.keeper = subprocess.Popen(["unshare", "--net", "--uts", "--mount", "sh", "-c", MACHINE, "sh", name, hosts], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE, text=True)
        assert self.keeper.stdout.readline() == "up\n", f"machine {name} cannot be made"
        self.enter = ["nsenter", "--target", str(self.keeper.pid), "--net", "--uts", "--mount"]
        subprocess.run(["ip", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0", "netns", str(self.keeper.pid)], check=True)
        subprocess.run(["ip", "link", "set", f"to-{name}", "master", "switch", "up"], check=True)
        self.run("ip", "address", "add", f"{address}/24", "dev", "eth0")
        self.link("up")

    def run(self, *command):
        subprocess.run([*self.enter, *map(str, command)], check=True)

    def start(self, *command, **options):
        return subprocess.Popen([*self.enter, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)

    def link(self, state):
        self.run("ip", "link", "set", "eth0", state)

    def turn_off(self):
        subprocess.run(["ip", "link", "delete", f"to-{self.name}"], check=True)  # at once: the kernel takes its time over namespaces
        self.keeper.stdin.close()
        self.keeper.wait(30)


class Machines:
    """Each knows the others, and itself by 127.0.1.1, as Debian's installer writes it."""

    def __init__(self, folder, *names):
        self.folder, self.names, self.all = Path(folder), names, []

    def __enter__(self):
        addresses = {name: f"10.0.0.{place + 1}" for place, name in enumerate(self.names)}
        for name in self.names:
            hosts = self.folder / f"hosts_of_{name}"
            hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{'127.0.1.1' if other == name else address} {other}\n"
                                                               for other, address in addresses.items()))
            self.all.append(Machine(name, addresses[name], hosts))
        return self.all

    def __exit__(self, *_):
        for machine in self.all:
            machine.turn_off()
