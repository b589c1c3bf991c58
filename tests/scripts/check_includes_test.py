"""scripts/check-includes: fails where an include, the build or the documents say something else than its table."""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
READ = ("scripts/check-includes", "CMakeLists.txt", "fuzz/CMakeLists.txt", "docs/architecture.md")


class CheckIncludes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="espalier_includes_")
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in READ:
            (self.root / name).parent.mkdir(exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        subprocess.run(["git", "init", "-q", self.root], check=True)

    def change(self, name, before, after):
        text = (self.root / name).read_text()
        self.assertEqual(text.count(before), 1, f"{name}: {before}")
        (self.root / name).write_text(text.replace(before, after))

    def add(self, name, text):
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text)
        subprocess.run(["git", "add", name], cwd=self.root, check=True)

    def expect(self, *parts):
        """One line that says all of them; without any, nothing is wrong."""
        result = subprocess.run([sys.executable, self.root / "scripts/check-includes"], capture_output=True, text=True)
        lines = result.stderr.splitlines()
        self.assertEqual((result.returncode, len(lines)), (1, 1) if parts else (0, 0), result.stderr)
        for part in parts:
            self.assertIn(part, lines[0])

    def test_the_build_links_what_the_table_gives(self):
        self.expect()
        self.change("CMakeLists.txt", "NAME linet TORCH DEPENDS core tensor lanes", "NAME linet TORCH DEPENDS core tensor lanes grow")
        self.expect("CMakeLists.txt", "espalier/linet depends on espalier/grow")

    def test_the_table_gives_what_the_build_links(self):
        self.change("CMakeLists.txt", "NAME policy TORCH ROOMS action learn observe reward DEPENDS core tensor",
                    "NAME policy TORCH ROOMS action learn observe reward DEPENDS core")
        self.expect("scripts/check-includes", "espalier/policy may include espalier/tensor")

    def test_rooms_without_torch_are_those_of_the_build(self):
        self.change("CMakeLists.txt", "NAME serve DEPENDS", "NAME serve TORCH DEPENDS")
        self.expect("espalier/watch/serve", "torch")

    def test_files_without_torch_are_those_that_are_fuzzed(self):
        self.change("docs/architecture.md", "`grow/description`, ", "")
        self.expect("espalier/grow/description", "docs/architecture.md", "fuzz/CMakeLists.txt")

    def test_a_file_that_is_fuzzed_includes_no_torch(self):
        self.add("espalier/grow/description.cpp", "#include <ATen/core/Tensor.h>\n")
        self.expect("espalier/grow/description.cpp", "ATen/core/Tensor.h")

    def test_examples_include_rooms_as_a_whole(self):
        self.add("examples/own.cpp", '#include "espalier/grow.h"\n#include "examples/small_job.h"\n')
        self.expect()
        self.add("examples/own.cpp", '#include "espalier/grow/seeds/branch.h"\n')
        self.expect("examples/own.cpp", "espalier/grow/seeds/branch.h")


if __name__ == "__main__":
    del sys.argv[1:2]  # the program, which the tests of this folder are told
    unittest.main()
