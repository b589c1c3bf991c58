"""A benchmark that is told to stop ends its peers and itself within five seconds, and says by its exit code why."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

# In place of a Python with torch: says that it has one, and as a peer never ends. Neither it nor what it starts, in
# its group and out of it, heeds SIGTERM.
PEER = r"""#!/bin/sh
case "$1" in -c) printf 2.11.0; exit 0;; esac
trap '' TERM INT
(setsid sh -c 'trap "" TERM INT; echo $$ > "$0/far"; while :; do sleep 1; done' "$FOLDER" &)
sh -c 'echo $$ > "$0/near"; while :; do sleep 1; done' "$FOLDER" &
while [ ! -s "$FOLDER/far" ] || [ ! -s "$FOLDER/near" ]; do sleep 0.02; done
echo $$ > "$FOLDER/new"; mv "$FOLDER/new" "$FOLDER/peer"
while :; do sleep 1; done
"""


def is_running(process):
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def patience():
    """How much slower than alone a busy machine may be."""
    return max(1, os.getloadavg()[0] / os.cpu_count())


class BenchStop(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.python = self.folder / "python"
        self.python.write_text(PEER)
        self.python.chmod(0o755)

    def start(self, *arguments):
        process = subprocess.Popen([PROGRAM, "bench", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=dict(os.environ, ESPALIER_PYTHON=str(self.python), FOLDER=str(self.folder), OMP_NUM_THREADS="1",
                                            TMPDIR=str(self.folder)))  # a killed one leaves its scratch folder
        self.addCleanup(process.kill)
        return process

    def peers(self, process):
        while not (self.folder / "peer").exists():
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        peers = [int((self.folder / name).read_text()) for name in ("far", "near", "peer")]
        self.addCleanup(lambda: [os.kill(peer, signal.SIGKILL) for peer in peers if is_running(peer)])
        self.assertTrue(all(map(is_running, peers)))
        return peers

    def ends(self, process, number, code):
        process.send_signal(number)
        began = time.monotonic()
        _, errors = process.communicate(timeout=60)
        self.assertLess(time.monotonic() - began, 5 * patience())
        self.assertEqual(process.returncode, code, errors)
        self.assertNotIn("error:", errors)

    def test_while_a_peer_is_timed(self):
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            process = self.start("gather", "--smoke", "--device", "cpu")
            peers = self.peers(process)
            self.ends(process, number, code)
            self.assertEqual([peer for peer in peers if is_running(peer)], [])
            # The next peer waits for the names its own children write: those of the last must not be there.
            for name in ("far", "near", "peer"):
                (self.folder / name).unlink()

    def test_a_peer_ends_with_a_program_that_is_killed(self):
        process = self.start("gather", "--smoke", "--device", "cpu")
        *_, peer = self.peers(process)
        process.kill()
        process.communicate(timeout=60)
        began = time.monotonic()
        while is_running(peer) and time.monotonic() - began < 10 * patience():
            time.sleep(0.02)
        self.assertFalse(is_running(peer))

    def test_in_the_middle_of_a_call_that_takes_long(self):
        process = self.start("population", "--device", "cpu", "--lanes", "8", "--batch", "384", "--base", "32", "--no-peers")
        # Data is made within two seconds; whenever the signal comes, it must be followed.
        time.sleep(4)
        self.assertIsNone(process.poll())
        self.ends(process, signal.SIGTERM, 143)


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
