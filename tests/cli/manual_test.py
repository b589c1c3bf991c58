"""Manual pages and completions know every command and flag that --help shows, and shells and man can read them."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = sys.argv.pop(1)
# A completion script calls the shell's own functions only; nothing is started.
# Each line that comes in is a command line that is being completed; each that goes out, what is offered.
BASH = """
source "$1"
compopt() { :; }
while IFS= read -r line; do
  read -r -a COMP_WORDS <<< "$line"
  [[ $line != *" " ]] || COMP_WORDS+=("")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _espalier
  echo "${COMPREPLY[*]}"
done
"""
ZSH = """
compdef() { : }; _arguments() { print -n -- "${(j: :)@%%\\[*}" }; _describe() { : }
source "$1" 2>/dev/null
while IFS= read -r line; do
  words=(${=line}); CURRENT=$#words; _espalier; print
done
"""
FISH = """
source {script}
while read -l line
    echo (complete -C "$line" | string replace -r '\\t.*' '')
end
"""


def said(*words):
    done = subprocess.run([PROGRAM, *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stdout


def commands(*path):
    """Every command, found by asking --help: ("train", "ppo")."""
    text = said(*path, "--help")
    found = [path]
    listed = re.search(r"\nCommands:\n((?:  .*\n)+)", text)
    for name in re.findall(r"^  (\S+)", listed.group(1), re.MULTILINE) if listed else []:
        found += commands(*path, name)
    return found


def flags(path):
    """The flags that --help shows: --lanes; of --[no-]tui both forms; "also --envs" in the text."""
    names = set()
    text = said(*path, "--help")
    for label in re.findall(r"^  (\S.*?)(?:  |$)", text.split("\nExamples:")[0], re.MULTILINE):
        for no, name in re.findall(r"--(\[no-\])?([a-z][a-z0-9-]*)", label):
            names |= {f"--{name}", f"--no-{name}"} if no else {f"--{name}"}
    return names | set(re.findall(r"also (--[a-z0-9-]+)", " ".join(text.split())))


class Manual(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.all = {path: flags(path) for path in commands()}
        said("man", "--out", cls.folder.name)
        cls.scripts = {shell: os.path.join(cls.folder.name, f"espalier.{shell}") for shell in ("bash", "zsh", "fish")}
        for shell, path in cls.scripts.items():
            with open(path, "w") as file:
                file.write(said("completion", shell))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def page(self, path):
        with open(os.path.join(self.folder.name, "-".join(("espalier", *path)) + ".1")) as file:
            return file.read()

    def offered(self, command, lines):
        """What a shell offers at the end of each line."""
        done = subprocess.run(command, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True,
                              env=dict(os.environ, HOME=self.folder.name))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        answers = [answer.split() for answer in done.stdout.splitlines()]
        self.assertEqual(len(answers), len(lines))
        return answers

    def bash(self, *lines):
        return self.offered(["bash", "-c", BASH, "bash", self.scripts["bash"]], lines)

    def assert_every_flag_is_offered(self, answers):
        for (path, names), answer in zip(self.all.items(), answers, strict=True):
            self.assertEqual(names - set(answer), set(), path)

    def lines_with_a_flag(self):
        return [" ".join(("espalier", *path, "--")) for path in self.all]

    def test_there_are_enough_to_compare(self):
        self.assertGreater(len(self.all), 25)
        self.assertIn(("train", "ppo"), self.all)
        self.assertIn("--learning-rate", self.all["train", "ppo"])
        self.assertIn("--envs", self.all["train", "ppo"])

    def test_every_command_has_a_page_with_all_its_flags(self):
        pages = [name for name in os.listdir(self.folder.name) if name.endswith(".1")]
        self.assertEqual(len(pages), len(self.all))
        for path, names in self.all.items():
            text = self.page(path).replace("\\-", "-")
            for name in names:
                self.assertIn(f"\\fB{name}\\fR", text, path)

    def test_one_page_is_printed(self):
        self.assertEqual(said("man", "train-ppo"), self.page(("train", "ppo")))
        self.assertEqual(said("man"), self.page(()))

    def test_an_unknown_command_is_refused_with_the_nearest(self):
        done = subprocess.run([PROGRAM, "man", "train-pop"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, "--command train-pop.*did you mean train-p")
        done = subprocess.run([PROGRAM, "completion", "csh"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("bash, zsh, fish", done.stderr)

    @unittest.skipUnless(shutil.which("groff"), "no groff on this machine")
    def test_pages_are_free_of_warnings(self):
        for path in self.all:
            done = subprocess.run(["groff", "-man", "-ww", "-Tascii", "-z"], input=self.page(path), capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)

    def test_bash_offers_commands_flags_and_values(self):
        file = self.scripts["bash"]
        commands, jobs, begun, shells, flag, number, path = self.bash(
            "espalier ", "espalier train ", "espalier train pop", "espalier completion --shell ", "espalier train ppo --learning-r",
            "espalier train ppo --lanes ", f"espalier train ppo --resume {file[:-2]}")
        self.assertIn("train", commands)
        self.assertEqual(sorted(jobs), ["host", "linet", "population", "ppo"])
        self.assertEqual(begun, ["population"])
        self.assertEqual(shells, ["bash", "zsh", "fish"])
        self.assertEqual(flag, ["--learning-rate"])
        self.assertEqual(number, [], "a number is nobody's to offer")
        self.assertEqual(path, [file])
        self.assert_every_flag_is_offered(self.bash(*self.lines_with_a_flag()))

    def test_flags_are_described_by_their_help_without_the_default(self):
        for shell in ("zsh", "fish"):
            with open(self.scripts[shell]) as file:
                (said_once,) = {line.partition("write the lines")[2] for line in file if "lane-lines" in line and "write the lines" in line}
            self.assertIn("(metrics.jsonl, TensorBoard) in every N-th epoch", said_once, shell)
            self.assertIn("are always written", said_once, shell)
            self.assertNotIn("(default", said_once, shell)
            with open(self.scripts[shell]) as file:
                self.assertNotIn("; also --", file.read(), shell)

    @unittest.skipUnless(shutil.which("zsh"), "no zsh on this machine")
    def test_zsh_reads_its_script_and_knows_every_flag(self):
        done = subprocess.run(["zsh", "-f", "-n", self.scripts["zsh"]], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        # What _arguments is told where each command is being typed.
        self.assert_every_flag_is_offered(self.offered(["zsh", "-f", "-c", ZSH, "zsh", self.scripts["zsh"]], self.lines_with_a_flag()))

    @unittest.skipUnless(shutil.which("fish"), "no fish on this machine")
    def test_fish_offers_commands_flags_and_values(self):
        fish = ["fish", "--no-config", "-c", FISH.format(script=self.scripts["fish"])]
        jobs, shells = self.offered(fish, ["espalier train ", "espalier completion --shell "])
        self.assertEqual(sorted(jobs), ["host", "linet", "population", "ppo"])
        self.assertEqual(sorted(shells), ["bash", "fish", "zsh"])
        self.assert_every_flag_is_offered(self.offered(fish, self.lines_with_a_flag()))


unittest.main()
