"""scripts/check-container with engines that are scripts: their containers run the real programs in the folder that they are given. Every
part of an image that is broken is found, and named."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ESPALIER = pathlib.Path(sys.argv[1]).resolve()
TOOLS = ("bash", "cat", "dirname", "env", "grep", "id", "ls", "mktemp", "rm", "sh", "tail")

# An engine: it keeps its calls, and plays the part of an image that BROKEN says is broken. In an image that is REAL the programs are; else
# they only leave what a check looks for, in no time.
ENGINE = f"""#!{sys.executable}
import json, os, pathlib, subprocess, sys
name, words, broken = pathlib.Path(sys.argv[0]).name, sys.argv[1:], os.environ.get("BROKEN", "")
real = os.environ.get("REAL") == "1"
home = pathlib.Path(sys.argv[0]).parents[1]
with open(home / "calls", "a") as calls:
    calls.write(json.dumps([name, *words]) + "\\n")
if words[0] == "info":
    print(os.environ.get("INFO", ""))
    sys.exit(name in os.environ.get("WITHOUT_DAEMON", "").split())
if words[0] in ("build", "bud", "rm"):
    sys.exit(broken == "build")
if words[:2] == ["image", "inspect"] or words[0] == "from":
    print("a-container")
    sys.exit(broken == "image")
if words[0] == "inspect":
    print({{"Entrypoint": "" if broken == "entry" else "espalier", "Cmd": "" if broken == "arguments" else "--help"}}[words[2].split(".Config.")[1].split("}}}}")[0]])
    sys.exit(0)
assert words[0] == "run", words
folder = words[words.index("--volume") + 1].split(":")[0]
if name == "buildah":
    entry, *rest = words[words.index("--") + 1:]
else:
    entry, given = None, words[1:]
    while given[0].startswith("--"):
        if given[0] == "--entrypoint":
            entry = given[1]
        given = given[1:] if given[0] == "--rm" or "=" in given[0] else given[2:]
    rest = given[1:]
    if entry is None:
        entry, rest = ("sh", ["-c", "exit 127"]) if broken == "entry" else "espalier", rest or ([] if broken == "arguments" else ["--help"])
        if isinstance(entry, tuple):
            entry, rest = entry
os.chdir(folder)

def fails(what):
    if what and broken == what:
        sys.exit(what + " is broken")

if entry == "sh":
    tool = rest[1].split()[2]
    print("/usr/bin/" + tool if broken == tool else "none") if rest[1].startswith("command -v") else \\
        print("/espalier" if broken == "sources" else "none") if rest[1].startswith("ls -d") else sys.exit(127)
    sys.exit(0)
ranks, does = 1, " ".join(rest)
if entry == "torchrun":
    fails("torchrun")
    assert "--standalone" in rest, "two checks at once would meet"
    ranks, does = 2, does.split("-m espalier ")[1]
fails(rest[0].strip("-") if rest and entry == "espalier" else "")
run_dir = rest[rest.index("--run-dir") + 1] if "--run-dir" in rest else ""
if broken == "silent":
    sys.exit(0)
if real:
    environment = dict(os.environ, PYTHONPATH={str(ROOT / "python")!r}, ESPALIER_LIBRARY={str(ESPALIER.parent / "libespalier_program.so")!r},
                       PATH=os.environ["PATH"] + ":/usr/bin:/bin", TMPDIR=str(home))
    program = [{str(ESPALIER)!r}] if entry == "espalier" else [sys.executable, "-m", "torch.distributed.run"]
    sys.exit(subprocess.run([*program, *rest], env=environment).returncode)
if does.startswith("train"):
    if broken != "place":
        pathlib.Path(run_dir).mkdir()
        pathlib.Path(run_dir, "environment.json").write_text(json.dumps({{"ranks": 1 if broken == "ranks" else ranks}}))
    print("test accuracy 0.5")
elif does.startswith("report"):
    if broken != "place":
        pathlib.Path(rest[1], "report.html").write_text("page")
    print("report.html")
elif does == "--help":
    print("'espalier COMMAND --help' tells more" + "\\n" * 200000)
elif not does:
    print("nothing to do")
else:
    print("espalier 1.0" if does == "--version" else "10 classes")
"""


class CheckContainer(unittest.TestCase):
    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="espalier_container_"))
        self.addCleanup(shutil.rmtree, self.home)
        (self.home / "bin").mkdir()
        (self.home / "tmp").mkdir()
        for tool in TOOLS:
            (self.home / "bin" / tool).symlink_to(shutil.which(tool))

    def check(self, *arguments, engines=("podman",), **variables):
        """Exit code, and all that was printed. No engine but those that are named, and nothing is left behind."""
        for engine in engines:
            (self.home / "bin" / engine).write_text(ENGINE)
            (self.home / "bin" / engine).chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if name not in ("IMAGE", "BUILD", "GPU_ARCHITECTURES")}
        environment.update(PATH=str(self.home / "bin"), TMPDIR=str(self.home / "tmp"), **variables)
        done = subprocess.run(["bash", ROOT / "scripts" / "check-container", *arguments], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=300)
        self.assertEqual(list((self.home / "tmp").iterdir()), [], done.stdout)
        return done.returncode, done.stdout

    def calls(self):
        return [json.loads(line) for line in (self.home / "calls").read_text().splitlines()]

    def test_is_content_with_what_the_programs_do(self):
        code, said = self.check(REAL="1")
        self.assertEqual(code, 0, said)
        self.assertTrue(said.endswith("check-container: fine\n"), said)
        self.assertIn(["podman", "build", "--file", "Containerfile", "--build-arg", "GPU_ARCHITECTURES=", "--tag", "espalier", "."], self.calls())
        for call in self.calls():
            if call[1] == "run":
                self.assertIn("--pull=never", call)
                self.assertNotIn("--user", call)

    def test_finds_what_is_broken(self):
        for broken, word in (("build", ""), ("image", "no image 'espalier'"), ("version", "--version: version is broken"), ("entry", "--version"),
                             ("arguments", "without arguments"), ("data", "data info"), ("train", "train population: train is broken"),
                             ("report", "report: report is broken"), ("place", "not in the folder"), ("torchrun", "by torchrun: torchrun is broken"),
                             ("ranks", "not of two ranks"), ("nvcc", "holds nvcc"), ("g++", "holds g++"), ("cmake", "holds cmake"),
                             ("sources", "holds the sources"), ("silent", "want '^espalier")):
            for engine in ("podman", "buildah"):
                with self.subTest(broken=broken, engine=engine):
                    code, said = self.check(engine, engines=[engine], BROKEN=broken)
                    self.assertEqual(code, 1, said)
                    self.assertIn(word, said)
                    self.assertNotIn("fine", said)

    def test_is_content_with_buildah(self):
        code, said = self.check(engines=["buildah"], GPU_ARCHITECTURES="9.0")
        self.assertEqual(code, 0, said)
        self.assertIn(["buildah", "bud", "--file", "Containerfile", "--build-arg", "GPU_ARCHITECTURES=9.0", "--tag", "espalier", "."], self.calls())
        self.assertEqual(self.calls()[-1], ["buildah", "rm", "a-container"])

    def test_leaves_nothing_of_roots_behind_docker(self):
        code, said = self.check(engines=["docker"])
        self.assertEqual(code, 0, said)
        runs = [call for call in self.calls() if call[1] == "run"]
        for call in runs:
            self.assertEqual(call[call.index("--user") + 1], f"{os.getuid()}:{os.getgid()}")
            self.assertEqual(call[call.index("--env") + 1], "HOME=/work")
        (self.home / "calls").unlink()
        self.assertEqual(self.check(engines=["docker"], INFO="Security Options: rootless")[0], 0)
        self.assertFalse([call for call in self.calls() if "--user" in call], "a daemon without root's rights maps users by itself")

    def test_takes_the_first_engine_that_works(self):
        code, said = self.check(engines=["podman", "docker", "buildah"], WITHOUT_DAEMON="podman docker")
        self.assertEqual(code, 0, said)
        self.assertEqual({call[0] for call in self.calls() if call[1] != "info"}, {"buildah"})

    def test_says_where_no_engine_works(self):
        for engines in ((), ("docker",)):
            code, said = self.check(engines=engines, WITHOUT_DAEMON="docker")
            self.assertEqual((code, said.count("\n")), (1, 1), said)
            self.assertIn("none of podman, docker and buildah works here", said)
        for name, word in (("podman", "not installed"), ("docker", "daemon"), ("make", "no engine")):
            code, said = self.check(name, WITHOUT_DAEMON="docker", engines=())
            self.assertEqual((code, said.count("\n")), (1, 1), said)
            self.assertIn(word, said)
        self.assertEqual(self.check("podman", "docker")[0], 2)

    def test_builds_nothing_and_fetches_nothing_with_build_off(self):
        self.assertEqual(self.check(BUILD="off", IMAGE="mine")[0], 0)
        self.assertFalse([call for call in self.calls() if call[1] == "build"])
        self.assertTrue(all("mine" in call for call in self.calls() if call[1] != "info"))
        code, said = self.check(BUILD="off", BROKEN="image")
        self.assertEqual(code, 1)
        self.assertIn("leave BUILD=off out", said)


if __name__ == "__main__":
    if os.environ.get("ESPALIER_SANITIZE"):
        print("skipped: Python cannot load instrumented code")
    else:
        unittest.main(argv=sys.argv[:1])
