"""The container file, as far as it can be tried without an engine: its commands are sh, what it copies and calls is there, it builds
with the torch that the build installs, and nothing secret goes in."""

import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
LINES = [line.split(None, 1) for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]


def those(word):
    return [rest for first, rest in LINES if first == word]


class Containerfile(unittest.TestCase):
    def test_has_known_words_and_commands_that_sh_can_read(self):
        self.assertEqual({first for first, _ in LINES} - {"FROM", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}, set())
        self.assertEqual(len(those("FROM")), 2)
        for command in those("RUN"):
            done = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)

    def test_calls_what_the_makefile_has_and_copies_what_it_makes(self):
        makefile = (ROOT / "Makefile").read_text()
        for target in re.findall(r"make ([a-z-]+)$", "\n".join(those("RUN")), re.MULTILINE):
            self.assertRegex(makefile, rf"(?m)^{target}:")
        (made,) = re.findall(r"--from=build /espalier/(\S+)/ ", TEXT)
        self.assertIn(f"scripts/make-deb build/package {made}", makefile)

    def test_has_the_torch_that_the_build_installs(self):
        (wanted,) = re.findall(r"torch==([0-9.]+)", (ROOT / "scripts" / "install-deps").read_text())
        self.assertEqual(re.findall(r"torch==([0-9.]+)", TEXT), [wanted])

    def test_takes_nothing_secret_and_nothing_that_was_built_elsewhere(self):
        self.assertNotRegex("\n".join(" ".join(line) for line in LINES).lower(), "secret|token|password|--mount|arg ")
        self.assertIn("build", (ROOT / ".dockerignore").read_text().split())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
