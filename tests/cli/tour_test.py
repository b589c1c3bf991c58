"""The tour of README: every command that it names is one, with flags that it has, and those that train say how long they take."""

import pathlib
import re
import shlex

from program import Case, main

README = (pathlib.Path(__file__).resolve().parents[2] / "README.md").read_text()
TOUR = README.split("## A tour of the commands")[1].split("```sh\n")[1].split("```")[0]


class Tour(Case):
    def commands(self):
        (small,) = re.findall(r'^SMALL="(.*)"$', TOUR, re.MULTILINE)
        for line in TOUR.splitlines():
            if line.startswith("espalier "):
                command, _, comment = line.partition(" # ")
                yield shlex.split(command.replace("$SMALL", small))[1:], comment

    def test_names_commands_and_flags_that_there_are(self):
        commands = list(self.commands())
        self.assertGreater(len(commands), 20)
        for words, _ in commands:
            self.run_well(*words, "--help")
            if words[0] in ("train", "evaluate", "plan", "bench", "profile") and "--resume" not in words:
                self.run_well(*words, "--print-config")

    def test_says_how_long_what_trains_takes(self):
        for words, comment in self.commands():
            if words[0] in ("train", "evaluate", "bench", "profile", "plan"):
                self.assertRegex(comment, r"\(\d+ (s|min)\b", words)


if __name__ == "__main__":
    main()
