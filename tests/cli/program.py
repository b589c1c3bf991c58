"""How the tests of this folder start the program: each in a folder of its own, with the environment that they say."""

import os
import subprocess
import sys
import tempfile
import unittest

TINY = ["--synthetic-train", "60", "--synthetic-test", "20", "--synthetic-size", "8x8", "--batch", "18", "--crop-pad", "1"]


def environment(**changes):
    """changes: None takes a variable away."""
    env = dict(os.environ, TERM="xterm", OMP_WAIT_POLICY="passive", OMP_NUM_THREADS="1")
    for name in ("NO_COLOR", "COLUMNS", "CUBLAS_WORKSPACE_CONFIG", "GOMP_SPINCOUNT"):
        env.pop(name, None)
    env.update({name: value for name, value in changes.items() if value is not None})
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
    return env


class Case(unittest.TestCase):
    program = ""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def start(self, *arguments, **changes):
        return subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=300, cwd=self.folder,
                              stdin=subprocess.DEVNULL, env=environment(**changes))

    def run_well(self, *arguments, **changes):
        """What it printed; it must end with 0."""
        result = self.start(*arguments, **changes)
        self.assertEqual(result.returncode, 0, f"{arguments}: {result.stderr}")
        return result.stdout

    def assert_refused(self, arguments, *parts, code=2):
        """One line on standard error (after those of progress) that names all parts."""
        result = self.start(*arguments)
        self.assertEqual(result.returncode, code, f"{arguments}: {result.stdout}{result.stderr}")
        errors = [line for line in result.stderr.splitlines() if line.startswith("espalier: error: ")]
        self.assertEqual(len(errors), 1, result.stderr)
        for part in parts:
            self.assertIn(part, errors[0])


def main():
    if len(sys.argv) < 2:
        sys.exit(f"usage: python {sys.argv[0]} ESPALIER [unittest arguments]")
    Case.program = os.path.abspath(sys.argv.pop(1))
    unittest.main(module="__main__")
