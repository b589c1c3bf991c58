"""The container file, as far as it can be tried without an engine: its commands are sh, what it copies and calls is there, it builds
with the torch that the build installs, and nothing secret goes in."""

import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = re.sub(r"\\\n", " ", (ROOT / "Containerfile").read_text())
LINES = [line.split(None, 1) for line in TEXT.splitlines() if line.strip() and not line.startswith("#")]


def those(word):
    return [rest for first, rest in LINES if first == word]


class Containerfile(unittest.TestCase):
    def test_has_known_words_and_commands_that_sh_can_read(self):
        self.assertEqual({first for first, _ in LINES} - {"FROM", "ARG", "RUN", "COPY", "WORKDIR", "ENV", "ENTRYPOINT", "CMD"}, set())
        self.assertEqual(len(those("FROM")), 2)
        for command in those("RUN"):
            done = subprocess.run(["sh", "-n", "-c", command], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)

    def test_calls_what_the_makefile_has_and_copies_what_it_makes(self):
        makefile = (ROOT / "Makefile").read_text()
        targets = re.findall(r"make ([a-z-]+)\b", "\n".join(those("RUN")))
        self.assertEqual(targets, ["deb"])
        self.assertRegex(makefile, r"(?m)^deb:")
        for variable in re.findall(r"([A-Z_]+)=\"", "\n".join(those("RUN"))):
            self.assertRegex(makefile, rf"(?m)^{variable} :=")
        (made,) = re.findall(r"--from=build /espalier/(\S+)/ ", TEXT)
        self.assertIn(f"scripts/make-deb build/package {made}", makefile)

    def test_has_the_torch_that_the_build_installs(self):
        (wanted,) = re.findall(r"torch==([0-9.]+)", (ROOT / "scripts" / "install-deps").read_text())
        self.assertEqual(re.findall(r"torch==([0-9.]+)", TEXT), [wanted])

    def test_starts_ranks_with_the_torch_and_the_package_that_it_has(self):
        (settings,) = [line for line in those("ENV") if "PYTHONPATH" in line]
        self.assertIn("PATH=/opt/torch/bin:$PATH", settings)
        self.assertIn("PYTHONPATH=/usr/share/espalier/python", settings)
        installed = (ROOT / "cmake" / "install.cmake").read_text()
        self.assertIn("/espalier/python", installed)

    def test_takes_nothing_secret_and_nothing_that_was_built_elsewhere(self):
        self.assertNotRegex("\n".join(" ".join(line) for line in LINES).lower(), "secret|token|password|--mount")
        self.assertEqual(those("ARG"), ["GPU_ARCHITECTURES="])  # what is built, and nothing else, is for who builds to say
        left_out = (ROOT / ".dockerignore").read_text().splitlines()
        for pattern in ("build", ".git/config", ".git/config.worktree", ".git/FETCH_HEAD", ".git/hooks", ".git/logs", "**/.env*", "**/.netrc",
                        "**/.pypirc", "**/*.key", "**/*.pem"):
            self.assertIn(pattern, left_out)

    def test_knows_the_commit_without_what_is_left_out(self):
        with tempfile.TemporaryDirectory() as folder:
            git = ["git", "-C", folder]
            subprocess.run([*git, "init", "-q"], check=True)
            subprocess.run([*git, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "--allow-empty", "-m", "x"], check=True)
            wanted = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout
            (pathlib.Path(folder) / ".git" / "config").unlink()
            shutil.rmtree(pathlib.Path(folder) / ".git" / "hooks", ignore_errors=True)
            shutil.rmtree(pathlib.Path(folder) / ".git" / "logs", ignore_errors=True)
            self.assertEqual(subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True).stdout, wanted)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
