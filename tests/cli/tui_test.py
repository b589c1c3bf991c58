"""The live view in a pseudo-terminal: what it draws, and that the terminal is given back. python tui_test.py ESPALIER"""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PROGRAM = ""
PATIENCE = 120  # seconds, for what takes one on an idle machine
TINY = ["--synthetic-train", "60", "--synthetic-test", "20", "--synthetic-size", "8x8", "--crop-pad", "1"]
PPO = ["train", "ppo", "--devices", "cpu", *TINY, "--envs", "2", "--batch-per-env", "9", "--episode-length", "4",
       "--encoder-size", "8", "--hidden-size", "8"]
POPULATION = ["train", "population", "--devices", "cpu", *TINY, "--batch", "9", "--controller", "random"]
ENDLESS = ["--epochs", "100000"]


class Terminal:
    """As much of a terminal as the program may use; anything else is a fault."""

    SEQUENCE = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])")

    def __init__(self, columns, rows):
        self.faults = []
        self.is_alternate = False
        self.has_cursor = True
        self.begun = b""
        self.normal = []  # lines of the normal screen and of what scrolled off it
        self.resize(columns, rows)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        self.clear()
        self.is_settled = False  # until the next frame, drawings for the old size are on their way

    def clear(self):
        self.grid = [[" "] * self.columns for _ in range(self.rows)]
        self.row = self.column = 0

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.grid)

    def feed(self, data):
        data = self.begun + data
        cut = data.rfind(b"\x1b")
        whole = len(data) if cut < 0 or re.match(rb"\x1b\[\??[0-9;]*[A-Za-z]", data[cut:]) else cut
        while whole > 0 and whole == len(data) and data[whole - 1] >= 0x80:  # perhaps half a character
            try:
                data[:whole].decode()
                break
            except UnicodeDecodeError:
                whole -= 1
        self.begun = data[whole:]
        text, place = data[:whole].decode(), 0
        while place < len(text):
            if text[place] != "\x1b":
                self.put(text[place])
                place += 1
                continue
            found = self.SEQUENCE.match(text, place)
            if not found:
                self.faults.append(text[place:place + 9])
                return
            self.obey(*found.groups())
            place = found.end()

    def obey(self, private, numbers, letter):
        if private:
            on = letter == "h"
            if numbers == "1049":
                self.is_alternate = on
                self.clear()
            elif numbers == "25":
                self.has_cursor = on
            else:
                self.faults.append(numbers + letter)
        elif letter == "H":
            row, _, column = numbers.partition(";")
            self.row, self.column = int(row or 1) - 1, int(column or 1) - 1
            if self.row >= self.rows and self.is_settled:
                self.faults.append(f"row {row} of {self.rows}")
        elif letter == "J" and numbers == "2":
            self.clear()
            self.is_settled = True
        elif letter == "J":
            for line in self.grid[self.row:]:
                line[:] = [" "] * self.columns
        elif letter == "K":
            if self.row < self.rows:
                self.grid[self.row][self.column:] = [" "] * (self.columns - self.column)
        elif letter != "m":
            self.faults.append(numbers + letter)

    def put(self, character):
        if not self.is_alternate:
            if character == "\n":
                self.normal.append("")
            elif character != "\r":
                self.normal[-1:] = [(self.normal or [""])[-1] + character]
            return
        if character < " ":
            self.faults.append(character)
        elif self.row < self.rows and self.column < self.columns:
            self.grid[self.row][self.column] = character
        elif self.is_settled:
            self.faults.append(f"{character} in column {self.column} of {self.columns}")
        self.column += 1


class Session:
    def __init__(self, case, *arguments, columns=100, rows=30, **changes):
        self.case = case
        self.folder = tempfile.TemporaryDirectory()
        case.addCleanup(self.folder.cleanup)
        self.controller, self.slave = pty.openpty()
        for descriptor in (self.controller, self.slave):
            case.addCleanup(os.close, descriptor)
        self.screen = Terminal(columns, rows)
        self.output = b""
        self.set_size(columns, rows)
        self.modes = termios.tcgetattr(self.slave)
        # A sanitized program would report SIGSEGV and exit 1: here it is to die of it, as any other does.
        env = dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8", OMP_NUM_THREADS="1", ASAN_OPTIONS="handle_segv=0")
        env.pop("NO_COLOR", None)
        env.update(changes)
        self.process = subprocess.Popen([PROGRAM, *arguments, "--run-dir", os.path.join(self.folder.name, "run")], env=env,
                                        preexec_fn=lambda: os.login_tty(self.slave))
        case.addCleanup(self.process.wait)
        case.addCleanup(self.process.kill)

    def set_size(self, columns, rows):
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def resize(self, columns, rows):
        self.set_size(columns, rows)
        self.screen.resize(columns, rows)

    def type(self, keys):
        os.write(self.controller, keys)

    def pump(self, seconds):
        """Whether anything came."""
        if not select.select([self.controller], [], [], seconds)[0]:
            return False
        data = os.read(self.controller, 65536)
        self.output += data
        self.screen.feed(data)
        return True

    def wait_for(self, condition):
        end = time.monotonic() + PATIENCE
        while not (found := condition()):
            self.case.assertLess(time.monotonic(), end, self.screen.text() + "\n".join(self.screen.normal))
            if not self.pump(0.05) and self.process.poll() is not None:
                self.case.fail("ended early:\n" + "\n".join(self.screen.normal))
        return found

    def sees(self, pattern):
        return self.wait_for(lambda: re.search(pattern, self.screen.text(), re.MULTILINE))

    def is_restored(self):
        return (not self.screen.is_alternate and self.screen.has_cursor
                and termios.tcgetattr(self.slave) == self.modes)

    def finish(self):
        """The exit code, once the terminal was found given back."""
        end = time.monotonic() + PATIENCE
        while self.process.poll() is None:
            self.case.assertLess(time.monotonic(), end, self.screen.text())
            self.pump(0.05)
        while self.pump(0.2):
            pass
        self.case.assertEqual(self.screen.faults, [])
        self.case.assertTrue(self.is_restored(), self.output[-200:])
        return self.process.returncode

    def normal(self):
        return "\n".join(self.screen.normal)


class Drawing(unittest.TestCase):
    def test_ppo_shows_its_networks_at_every_size_and_q_stops_it(self):
        session = Session(self, *PPO, "--rounds", "100000")
        session.sees(r"^espalier train ppo  run  running$")
        session.sees(r"^round ([2-9]|\d\d+)/100000, step \d/4 ")
        session.sees(r"^return -?\d+\.\d{3} .*reward .*validation \d")
        session.sees(r"steps/s  .*samples/s|s a step  ")
        session.sees(r"^lane accuracy +now +loss +reward  seeds$")
        for lane in (0, 1):
            session.sees(rf"^   {lane} [▁▂▃▄▅▆▇█]+ +\d+\.\d % +\d+\.\d{{3}} ")
        session.sees(r"GERMINATED|TRAINING|BLENDING|HOLDING|FOSSILIZED|PRUNED|EMBARGOED")
        session.sees(r"^round \d+/100000  return ")  # the last messages
        self.assertTrue(session.screen.is_alternate)
        self.assertFalse(session.screen.has_cursor)
        self.assertFalse(termios.tcgetattr(session.slave)[3] & (termios.ECHO | termios.ICANON))
        for columns, rows in ((40, 10), (20, 5), (5, 2), (200, 50)):
            session.resize(columns, rows)
            session.sees(r"\A(espa|ppo)")
            session.wait_for(lambda: session.screen.is_settled)
            if rows >= 5:
                session.sees(r"^   1 +\S*.*\d % ")
        session.sees(r"^   0 ")
        session.type(b"q")
        self.assertEqual(session.finish(), 130)
        self.assertRegex(session.normal(), r"(?m)^results: ")
        self.assertRegex(session.normal(), r"(?m)^round 1/100000  return \S+  accuracy ")
        self.assertRegex(session.normal(), r"stopped; to go on: espalier train ppo --resume .*run\n")

    def test_population_scrolls_and_keeps_its_result_on_the_normal_screen(self):
        session = Session(self, *POPULATION, "--lanes", "8", "--epochs", "40", rows=12)
        session.sees(r"^rows 1 to \d of 8, and \d more$")
        self.assertRegex(session.screen.text(), r"(?m)^   0 ")
        session.type(b"\x1b[B")
        session.sees(r"^rows 2 to \d of 8")
        session.type(b"\x1b[6~\x1b[6~\x1b[6~")
        session.sees(r"^rows \d to 8 of 8")
        self.assertRegex(session.screen.text(), r"(?m)^   7 ")
        self.assertEqual(session.finish(), 0)
        for epoch in (1, 40):
            self.assertRegex(session.normal(), rf"(?m)^epoch {epoch}/40  loss ")
        self.assertRegex(session.normal(), r"(?m)^test accuracy \S+ % on average")

    def test_linet_shows_its_streams_and_host_its_network(self):
        session = Session(self, "train", "linet", "--device", "cpu", "--data", "synthetic:rgbd", *TINY, "--batch", "9", *ENDLESS)
        session.sees(r"^stream accuracy +now +loss +share$")
        session.sees(r"^ +depth .* \d+\.\d %")
        session.type(b"q")
        self.assertEqual(session.finish(), 130)
        session = Session(self, "train", "host", "--device", "cpu", *TINY, "--batch", "9", "--epochs", "2")
        self.assertEqual(session.finish(), 0)
        self.assertRegex(session.normal(), r"(?m)^epoch 2/2 .*\n(.*\n)*test accuracy ")

    def test_without_utf8_and_colour_all_is_plain_ascii(self):
        session = Session(self, *POPULATION, "--lanes", "2", *ENDLESS, LC_ALL="C", NO_COLOR="1")
        session.sees(r"^   1 [_.:=+*#-]+ ")
        session.type(b"q")
        self.assertEqual(session.finish(), 130)
        self.assertTrue(session.output.isascii())
        self.assertIsNone(re.search(rb"\x1b\[[1-9][0-9]*m", session.output))


class Endings(unittest.TestCase):
    def running(self):
        session = Session(self, *POPULATION, "--lanes", "2", *ENDLESS)
        session.sees(r"^   1 ")
        return session

    def test_ctrl_c_is_130(self):
        session = self.running()
        session.type(b"\x03")
        self.assertEqual(session.finish(), 130)

    def test_signals_that_end_a_process_give_the_terminal_back(self):
        for number, code in ((signal.SIGTERM, 143), (signal.SIGSEGV, -signal.SIGSEGV), (signal.SIGABRT, -signal.SIGABRT),
                             (signal.SIGHUP, -signal.SIGHUP)):
            session = self.running()
            session.process.send_signal(number)
            self.assertEqual(session.finish(), code)

    def test_a_second_ctrl_c_after_a_second_ends_it_at_once(self):
        # A step of minutes, so that the first one cannot be followed.
        session = Session(self, "train", "population", "--devices", "cpu", "--host", "cifar_wide", "--lanes", "16", "--batch", "1000",
                          "--synthetic-train", "1200", "--synthetic-test", "20", *ENDLESS)
        session.sees("running$")
        session.type(b"\x03")
        session.sees("stopping$")
        self.assertNotIn("espalier: stopping", session.output.decode())
        session.type(b"q")  # a key is no second signal
        session.pump(0.3)
        self.assertIsNone(session.process.poll())
        time.sleep(1.2)
        session.type(b"\x03")
        began = time.monotonic()
        self.assertEqual(session.finish(), 130)
        self.assertLess(time.monotonic() - began, 10)

    def test_an_error_is_seen_on_the_normal_screen(self):
        # Every step multiplies weights by -99 or so: no roll-back helps.
        session = Session(self, *POPULATION, "--lanes", "2", "--learning-rate", "100", "--weight-decay", "1", "--epochs", "20")
        self.assertEqual(session.finish(), 1)
        self.assertRegex(session.normal(), r"espalier: error:.* not finite")

    def test_ctrl_z_gives_the_terminal_to_the_shell_until_the_job_goes_on(self):
        session = self.running()
        session.type(b"\x1a")

        def state():
            with open(f"/proc/{session.process.pid}/stat") as stat:
                return stat.read().rpartition(")")[2].split()[0]

        session.wait_for(lambda: state() == "T")
        session.wait_for(session.is_restored)
        session.process.send_signal(signal.SIGCONT)
        session.wait_for(lambda: session.screen.is_alternate)
        session.sees(r"^   1 ")
        session.type(b"q")
        self.assertEqual(session.finish(), 130)


class Plain(unittest.TestCase):
    def test_without_the_view_there_is_a_line_a_step_and_no_escape_sequence(self):
        session = Session(self, *PPO, "--rounds", "2", "--no-tui")
        self.assertEqual(session.finish(), 0)
        self.assertNotIn(b"\x1b", session.output)
        self.assertIsNone(re.search(rb"\r[^\n]", session.output))
        for step in range(1, 5):
            self.assertRegex(session.normal(), rf"(?m)^round 2/2  step {step}/4  validation accuracy \S+ %")
        session = Session(self, *POPULATION, "--lanes", "2", "--epochs", "2", "--no-tui")
        self.assertEqual(session.finish(), 0)
        self.assertNotIn(b"\x1b", session.output)
        self.assertRegex(session.normal(), r"(?m)^epoch 2/2  loss ")

    def test_a_pipe_gets_plain_lines(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, job in (("ppo", [*PPO, "--rounds", "1"]), ("population", [*POPULATION, "--lanes", "2", "--epochs", "1"])):
                result = subprocess.run([PROGRAM, *job, "--tui", "--run-dir", os.path.join(folder, name)], capture_output=True,
                                        timeout=300, stdin=subprocess.DEVNULL, env=dict(os.environ, TERM="xterm"))
                self.assertEqual(result.returncode, 0, result.stderr)
                for text in (result.stdout, result.stderr):
                    self.assertNotIn(b"\x1b", text)
                    self.assertNotIn(b"\r", text)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python tui_test.py ESPALIER [unittest arguments]")
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
