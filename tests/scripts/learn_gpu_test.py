"""scripts/learn-gpu: a whole seed in its tiny form, pieces that go on, and a table of what was measured. python learn_gpu_test.py ESPALIER"""

import importlib.machinery
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "learn-gpu"

# Stands in for the program: a training that waits to be stopped at its first call, evaluations that take as long as they are told.
STAND_IN = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
run.mkdir(parents=True, exist_ok=True)
calls = run / "calls"
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
if sys.argv[1] == "train" and calls.read_text() == "x":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    time.sleep(60)
if sys.argv[1] == "evaluate":
    time.sleep(float(os.environ.get("EVALUATION_SECONDS", "0")))
    (run / "config.json").write_text(json.dumps({"lanes": 2, "episode-length": 5, "data": "d", "host": "h"}))
    pair = {"test_accuracy_over_first": 0.01, "test_accuracy_over_first_95": 0.005, "test_accuracy_over_first_p": 0.0001}
    for name in sys.argv[sys.argv.index("--controllers") + 1].split(","):
        line = {"kind": "evaluated", "controller": name, "test_accuracy": 0.5, "test_accuracy_95": 0.01, "added_parameters": 0.1,
                "added_parameters_95": 0.2, "seeds_kept": 1, "seeds_kept_95": 0, "lost": 0, "illegal_actions": 0} | pair
        with open(run / "metrics.jsonl", "a") as file:
            print(json.dumps(line), file=file)
            for other in ("none", "random", "heuristic", "ppo:p"):
                print(json.dumps({"kind": "compared", "controller": name, "over": other, "test_accuracy_difference": 0.02,
                                  "test_accuracy_difference_95": 0.01, "test_accuracy_difference_p": 0.5}), file=file)
if os.environ.get("LARGE"):
    (run / "large").write_bytes(bytes(16 << 20))
with open(run / "metrics.jsonl", "a") as file:
    print(json.dumps({"kind": "result"}), file=file)
"""


def loaded_script():
    """The script as a module: its name has no suffix."""
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("learn_gpu", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("learn_gpu", loader))
    sys.modules["learn_gpu"] = module  # where dataclasses look
    loader.exec_module(module)
    return module


def lines_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class LearnGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = PROGRAM

    def call(self, *arguments, **changes):
        return subprocess.run([sys.executable, SCRIPT, self.folder / "results", "--form", "tiny", "--program", self.program, *arguments],
                              capture_output=True, text=True, timeout=600, env=dict(os.environ, **changes))

    def call_well(self, *arguments, **changes):
        done = self.call(*arguments, **changes)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def stand_in(self):
        self.program = self.folder / "program"
        self.program.write_text(STAND_IN)
        self.program.chmod(0o755)

    def test_two_seeds_make_one_table_of_what_was_measured(self):
        self.assertIn("seed 0 is done", self.call_well())
        self.assertIn("seed 1 is done", self.call_well("--seed", "1"))
        results = self.folder / "results"
        table = (results / "table.md").read_text()
        for seed in (0, 1):
            run = results / f"seed{seed}" / "evaluate"
            scores = {line["controller"].split(":")[0]: line for line in lines_of(run) if line["kind"] == "evaluated"}
            self.assertEqual(list(scores), ["none", "random", "heuristic", "ppo", "static", "replay"])
            for name, line in scores.items():
                row = re.search(rf"^\| {name} \| {seed} \| ([\d.]+) \+- ([\d.]+) \|", table, re.MULTILINE)
                self.assertTrue(row, table)
                self.assertAlmostEqual(float(row[1]), 100 * line["test_accuracy"], delta=0.0051)
                self.assertAlmostEqual(float(row[2]), 100 * line["test_accuracy_95"], delta=0.0051)
            by_hand = {}  # means of episodes
            for line in lines_of(run):
                if line["kind"] == "evaluated_lane":
                    by_hand.setdefault(line["controller"].split(":")[0], []).append(line["test_accuracy"])
            ppo, static = (sum(by_hand[name]) / len(by_hand[name]) for name in ("ppo", "static"))
            row = re.search(rf"^\| static \| {seed} \| ([+-][\d.]+) \+- [\d.]+ \| [\d.]+ \|$", table, re.MULTILINE)
            self.assertTrue(row, table)
            self.assertAlmostEqual(float(row[1]), 100 * (ppo - static), delta=0.0051)
            self.assertRegex(table, rf"(?m)^\| classes 0-4 \| {seed} \| ")
            longer = [line for line in lines_of(results / f"seed{seed}" / "reference1") if line["kind"] == "evaluated"]
            self.assertEqual([line["controller"] for line in longer], ["none"])
            row = re.search(rf"^\| 6 steps \| {seed} \| ([\d.]+) \+- [\d.]+ \|$", table, re.MULTILINE)
            self.assertTrue(row, table)
            self.assertAlmostEqual(float(row[1]), 100 * longer[0]["test_accuracy"], delta=0.0051)
            half = json.loads((results / f"seed{seed}" / "transfer1" / "config.json").read_text())
            self.assertEqual(half["classes"], "0-4")
        self.assertRegex(table, r"(?m)^Seed 1: cpu \(fp32\), commit \w+, [\d.]+ minutes\.$")
        self.assertRegex(table, r"(?m)^\| ppo \| mean of 2 \| [\d.]+ \|")

        before = {path: path.stat().st_mtime_ns for path in results.rglob("metrics.jsonl")}
        self.assertIn("seed 0 is done", self.call_well())
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in results.rglob("metrics.jsonl")})

    def test_a_training_that_the_time_stops_goes_on_in_the_next_call(self):
        self.stand_in()
        self.assertIn("run the same command again", self.call_well("--minutes", "0.02"))
        train = self.folder / "results" / "seed0" / "train"
        self.assertFalse((train / "metrics.jsonl").exists())
        self.assertIn("seed 0 is done", self.call_well("--minutes", "1"))
        self.assertEqual((train / "calls").read_text(), "xx")
        self.assertIn("| < 0.001 |", (self.folder / "results" / "table.md").read_text())

    def test_an_evaluation_that_takes_longer_than_a_call_is_named(self):
        self.stand_in()
        self.call_well("--minutes", "0.02")
        done = self.call("--minutes", "0.03", EVALUATION_SECONDS="30")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"seed0/evaluate: 0.03 minutes are not enough")

    def test_a_file_of_16_mib_is_named(self):
        self.stand_in()
        self.call_well("--minutes", "0.02")
        done = self.call(LARGE="1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"files of 16 MiB and more: .*train/large \(16.0 MiB\)")

    def test_the_program_takes_every_flag_of_every_form(self):
        script = loaded_script()
        for name, form in script.FORMS.items():
            form.flags.setdefault("data", "cifar10:/nowhere")
            for part in script.parts_of(form, 3, self.folder, self.program):
                done = subprocess.run([*part.command, "--print-config"], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, f"{name}, {part.name}: {done.stderr}")
                config = json.loads(done.stdout)
                self.assertEqual((config["seed"], config["plan"], config["clip"]), (3, "split", 1), f"{name}, {part.name}")
        wide = script.parts_of(script.FORMS["gpu-short"], 0, self.folder, self.program)[2].command
        self.assertEqual(wide[wide.index("--host") + 1], "cifar_wide")
        longer = script.parts_of(script.FORMS["gpu"], 0, self.folder, self.program)[-1].command
        self.assertEqual(longer[longer.index("--episode-length") + 1], "60")
        for name in ("gpu", "gpu-short"):
            self.assertLessEqual(max(part.minutes for part in script.parts_of(script.FORMS[name], 0, self.folder, "")), 9)

    def test_the_form_for_gpus_wants_to_know_where_the_data_is(self):
        done = subprocess.run([sys.executable, SCRIPT, self.folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--data cifar10:", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
