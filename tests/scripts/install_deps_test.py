"""scripts/install-deps: refuses an older torch by its version, does nothing where all is there, leaves out what tests want."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def install_deps(**environment):
    command = ["bash", str(ROOT / "scripts" / "install-deps")]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)


class InstallDepsTest(unittest.TestCase):
    def test_refuses_an_older_torch_with_both_versions(self):
        with tempfile.TemporaryDirectory() as folder:
            python = pathlib.Path(folder) / "python3"
            python.write_text("#!/bin/sh\necho 2.5.1\n")  # whatever is asked: the version of its torch
            python.chmod(0o755)
            result = install_deps(PATH=f"{folder}:{os.environ['PATH']}")
        self.assertEqual(result.returncode, 1)
        self.assertIn("2.5.1", result.stderr)
        self.assertIn("2.11", result.stderr)
        self.assertIn("ESPALIER_TORCH=venv", result.stderr)

    def test_does_nothing_where_all_is_there(self):
        result = install_deps()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout + result.stderr, "")

    def test_leaves_out_what_only_tests_want_when_told_so(self):
        with tempfile.TemporaryDirectory() as folder:
            # No package is there, and what would be installed is written down.
            asked = pathlib.Path(folder) / "asked"
            for name, text in (("dpkg-query", "true"), ("apt-get", f'echo "$@" >> {asked}'), ("sudo", 'exec "$@"')):
                tool = pathlib.Path(folder) / name
                tool.write_text(f"#!/bin/sh\n{text}\n")
                tool.chmod(0o755)
            packages = {}
            for tests in ("on", "off"):
                asked.unlink(missing_ok=True)
                result = install_deps(PATH=f"{folder}:{os.environ['PATH']}", ESPALIER_TESTS=tests)
                self.assertEqual(result.returncode, 0, result.stderr)
                packages[tests] = set(asked.read_text().split())
        self.assertLessEqual({"zsh", "fish", "clang"}, packages["on"])
        self.assertIn("build-essential", packages["off"])
        self.assertFalse({"zsh", "fish", "clang", "chromium"} & packages["off"])

    def test_finds_a_torch_below_a_prefix_with_a_space_in_its_name(self):
        with tempfile.TemporaryDirectory() as folder:
            prefix = pathlib.Path(folder) / "my torch"
            (prefix / "share" / "cmake" / "Torch").mkdir(parents=True)
            for name in ("without", "with"):
                if name == "with":
                    (prefix / "share" / "cmake" / "Torch" / "TorchConfig.cmake").touch()
                for prefixes in (f"{prefix}", f"/nowhere:{prefix}", f"/nowhere;{prefix}"):
                    script = 'set -euo pipefail; . "$0"; espalier_prefix_has_torch'
                    done = subprocess.run(["bash", "-c", script, ROOT / "scripts" / "env.sh"], capture_output=True, text=True,
                                          env={**os.environ, "CMAKE_PREFIX_PATH": prefixes})
                    self.assertEqual((done.returncode, done.stderr), (0 if name == "with" else 1, ""), prefixes)


if __name__ == "__main__":
    unittest.main(argv=["install_deps_test.py"])
