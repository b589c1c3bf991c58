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

# Stands in for the program: a training that waits to be stopped at its first call, evaluations that take as long as they are told
# at theirs.
STAND_IN = """#!/usr/bin/env python3
import json, os, pathlib, signal, sys, time
run = pathlib.Path(sys.argv[sys.argv.index("--run-dir") + 1])
run.mkdir(parents=True, exist_ok=True)
calls = run / "calls"
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if calls.read_text() == "x":
    time.sleep(60 if sys.argv[1] == "train" else float(os.environ.get("EVALUATION_SECONDS", "0")))
if sys.argv[1] == "evaluate":
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
        self.assertRegex(table, r"(?m)^\| ppo \| mean of 2 \| [\d.]+ \+- [\d.]+ \| -?[\d.]+ \+- [\d.]+ \|")

        before = {path: path.stat().st_mtime_ns for path in results.rglob("metrics.jsonl")}
        self.assertIn("seed 0 is done", self.call_well())
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in results.rglob("metrics.jsonl")})

    def test_a_training_that_the_time_stops_goes_on_in_the_next_call(self):
        self.stand_in()
        self.assertIn("run the same command again", self.call_well("--minutes", "0.1"))
        train = self.folder / "results" / "seed0" / "train"
        self.assertFalse((train / "metrics.jsonl").exists())
        self.assertIn("seed 0 is done", self.call_well("--minutes", "1"))
        self.assertEqual((train / "calls").read_text(), "xx")
        self.assertIn("| < 0.001 |", (self.folder / "results" / "table.md").read_text())

    def test_an_evaluation_that_the_time_stops_goes_on_in_the_next_call(self):
        self.stand_in()
        self.call_well("--minutes", "0.1")
        self.assertIn("run the same command again", self.call_well("--minutes", "0.2", EVALUATION_SECONDS="30"))
        evaluation = self.folder / "results" / "seed0" / "evaluate"
        self.assertFalse((evaluation / "metrics.jsonl").exists())
        self.assertIn("seed 0 is done", self.call_well())
        self.assertEqual((evaluation / "calls").read_text(), "xx")

    def test_a_seed_of_the_forms_for_gpus_takes_25_minutes_at_most(self):
        script = loaded_script()
        for name in ("gpu", "gpu-short"):
            parts = script.parts_of(script.FORMS[name], 0, self.folder, "")
            self.assertTrue(all(part.minutes > script.START_SECONDS / 60 for part in parts), name)
            self.assertLessEqual(sum(part.minutes for part in parts), 25, name)
            self.assertLessEqual(script.FORMS[name].minutes, 9, name)

    def test_stability_says_how_long_it_still_takes_where_that_is_known(self):
        self.stand_in()
        said = self.call_well("--stability", "--form", "gpu", "--data", "cifar10:/nowhere", "--minutes", "0.02")
        # Ten populations of 10 + 15 s, ten of 10 + 25 s.
        self.assertIn("seed 0 is not done yet (about 10 minutes of an H200", said)
        self.assertIn("seed 1 is not done yet: run the same", self.call_well("--stability", "--seed", "1", "--minutes", "0.02"))

    def test_a_file_of_16_mib_is_named(self):
        self.stand_in()
        self.call_well("--minutes", "0.1")
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
        elsewhere = script.parts_of(script.FORMS["gpu"], 0, self.folder, self.program)[2].command
        self.assertEqual(elsewhere[elsewhere.index("--host") + 1], "tiny_wide")
        longer = script.parts_of(script.FORMS["gpu"], 0, self.folder, self.program)[-1].command
        self.assertEqual(longer[longer.index("--episode-length") + 1], "60")
        self.assertEqual(longer[longer.index("--episodes") + 1], "4")
        for name, form in script.FORMS.items():
            form.stability.setdefault("data", "cifar10:/nowhere")
            for part in script.stability_parts(form, 3, self.folder, self.program) if len(form.stability) > 1 else []:
                done = subprocess.run([*part.command, "--print-config"], capture_output=True, text=True, timeout=60)
                self.assertEqual(done.returncode, 0, f"{name}, {part.name}: {done.stderr}")
                config = json.loads(done.stdout)
                self.assertEqual(part.name, f"stability/{config['plan']}-{config['learning-rate']:g}-{config['controller']}", name)
                self.assertEqual((config["seed"], config["governor"]), (3, "on"), f"{name}, {part.name}")

    def test_the_form_for_gpus_wants_to_know_where_the_data_is(self):
        done = subprocess.run([sys.executable, SCRIPT, self.folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--data cifar10:", done.stderr)

    def test_a_folder_with_a_comma_in_its_name_is_refused(self):
        done = subprocess.run([sys.executable, SCRIPT, self.folder / "one,two" / "results", "--form", "tiny"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("one,two/results: has a comma", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])


class OverSeeds(unittest.TestCase):
    """The bar is about means over seeds: ppo over none, and over heuristic."""

    # What three seeds came to, as shares.
    NONE = [0.50, 0.52, 0.54]
    PPO_OVER_NONE = [0.10, 0.12, 0.14]
    HEURISTIC_OVER_PPO = [-0.01, -0.03, -0.05]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = loaded_script()
        for seed in range(3):
            self.write_seed(seed)

    def write_seed(self, seed):
        none, gain = self.NONE[seed], self.PPO_OVER_NONE[seed]
        accuracies = {"none": none, "random": none, "heuristic": none + gain + self.HEURISTIC_OVER_PPO[seed], "ppo:p": none + gain,
                      "static": none, "replay": none}
        lines = []
        for name, accuracy in accuracies.items():
            lines.append({"kind": "evaluated", "controller": name, "test_accuracy": accuracy, "test_accuracy_95": 0.01,
                          "test_accuracy_over_first": accuracy - none, "test_accuracy_over_first_95": 0.01, "test_accuracy_over_first_p": 0.01,
                          "added_parameters": 1, "added_parameters_95": 0.1, "seeds_kept": 1, "seeds_kept_95": 0, "lost": 0,
                          "illegal_actions": 0})
            if name != "ppo:p":  # some are told as who was below it, some the other way round
                sign = 1 if name == "none" else -1
                pair = ("ppo:p", name) if name == "none" else (name, "ppo:p")
                lines.append({"kind": "compared", "controller": pair[0], "over": pair[1], "test_accuracy_difference_95": 0.01,
                              "test_accuracy_difference": sign * (none + gain - accuracy), "test_accuracy_difference_p": 0.01})
        run = self.folder / f"seed{seed}" / "evaluate"
        run.mkdir(parents=True)
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in [*lines, {"kind": "result"}]))

    def rows(self, table, name):
        """Cells of the rows of means, by the name in the first column."""
        return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines() if row.startswith(f"| {name} | mean of ")]

    # Student's t of three: 4.3027, over the root of three, times the deviation of 2 points: 4.97.
    def test_controllers_have_a_mean_with_its_interval(self):
        table = self.script.controllers_table(self.folder, [0, 1, 2])
        self.assertEqual(self.rows(table, "none"), [["none", "mean of 3", "52.00 +- 4.97", *[""] * 6]])
        self.assertEqual(self.rows(table, "ppo"), [["ppo", "mean of 3", "64.00 +- 9.94", "12.00 +- 4.97", *[""] * 5]])

    def test_ppo_over_each_opponent_has_a_mean_with_its_interval(self):
        table = self.script.opponents_table(self.folder, [0, 1, 2])
        self.assertEqual(self.rows(table, "none"), [["none", "mean of 3", "+12.00 +- 4.97", ""]])
        self.assertEqual(self.rows(table, "heuristic"), [["heuristic", "mean of 3", "+3.00 +- 4.97", ""]])

    def test_of_two_seeds_the_interval_is_wide(self):
        table = self.script.opponents_table(self.folder, [0, 2])
        self.assertEqual(self.rows(table, "none"), [["none", "mean of 2", "+12.00 +- 25.41", ""]])  # 12.7062 times 2

    def test_one_seed_has_no_mean(self):
        for table in (self.script.controllers_table, self.script.opponents_table):
            self.assertNotIn("mean of", table(self.folder, [1]))


def lane_line(epoch, accuracy, lane=0, **more):
    return {"kind": "lane", "epoch": epoch, "lane": lane, "outcome": "trained", "validation_accuracy": accuracy} | more


def population_lines(ends, steps, amplitude=1.0):
    """A run whose lanes end at `ends`; lane 0 walks through `steps`: (accuracy, collapsed)."""
    lines = [lane_line(epoch, accuracy, **({"collapse": "loss_jumped", "outcome": "rolled_back"} if collapsed else {}),
                       slots=[{"slot": "r0c0", "stage": "BLENDING", "amplitude": amplitude}])
             for epoch, (accuracy, collapsed) in enumerate(steps, 1)]
    return lines + [{"kind": "lane_result", "lane": lane, "test_accuracy": end} for lane, end in enumerate(ends)] + [{"kind": "result"}]


class Stability(unittest.TestCase):
    SOUND = [(0.5, False), (0.6, False)]

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.script = loaded_script()

    def judge(self, grown, none=None):
        return self.script.judged(self.script.population_of(none or population_lines([0.5, 0.6, 0.7], self.SOUND, amplitude=0.0)),
                                  self.script.population_of(grown))

    def test_a_healthy_cell_passes(self):
        self.assertEqual(self.judge(population_lines([0.55, 0.6, 0.7], self.SOUND)), [])

    def test_a_network_below_nine_tenths_of_the_median_of_none_fails(self):
        self.assertEqual(self.judge(population_lines([0.54, 0.9, 0.9], self.SOUND)), [])  # 0.9 * 0.6
        self.assertEqual(self.judge(population_lines([0.53, 0.9, 0.9], self.SOUND)), ["1 left behind"])

    def test_a_network_that_does_not_recover_within_five_steps_fails(self):
        ends = [0.6, 0.65, 0.75]
        collapse = [(0.6, False), (0.6, True)]
        low, back = (0.53, False), (0.54, False)
        recovered = self.script.population_of(population_lines(ends, [*collapse, *[low] * 4, back]))
        self.assertEqual((recovered.flags, recovered.slowest, recovered.lost), (1, 5, 0))
        self.assertEqual(self.judge(population_lines(ends, [*collapse, *[low] * 4, back])), [])
        self.assertEqual(self.judge(population_lines(ends, [*collapse, *[low] * 5, back])), ["1 not recovered"])
        # A second collapse on the way belongs to the first.
        self.assertEqual(self.judge(population_lines(ends, [*collapse, low, low, (0.6, True), low, low, back])), ["1 not recovered"])
        given_up = population_lines(ends, self.SOUND)
        given_up.insert(2, lane_line(3, 0.6, outcome="retired"))
        self.assertEqual(self.judge(given_up), ["1 not recovered"])

    def test_a_flag_without_growth_fails(self):
        none = population_lines([0.5, 0.6, 0.7], [*self.SOUND, (0.6, True), (0.6, False)], amplitude=0.0)
        self.assertEqual(self.judge(population_lines([0.6, 0.6, 0.7], self.SOUND), none), ["1 flags without growth"])

    def test_a_mean_below_none_by_more_than_its_interval_fails(self):
        ends, none = [0.58, 0.59, 0.58, 0.59], population_lines([0.6, 0.6, 0.6, 0.6], self.SOUND, amplitude=0.0)
        self.assertEqual(self.judge(population_lines(ends, self.SOUND), none), ["worse on average"])
        mean, half = self.script.interval_of([-0.02, -0.01, -0.02, -0.01])
        self.assertAlmostEqual(mean, -0.015)
        self.assertAlmostEqual(half, 3.1824 * 0.0057735 / 2, delta=1e-4)  # Student's t of three degrees
        self.assertEqual(self.judge(population_lines([0.56, 0.62, 0.61, 0.60], self.SOUND), none), [])

    def test_where_nothing_grew_nothing_was_tested(self):
        self.assertEqual(self.judge(population_lines([0.6, 0.6, 0.7], self.SOUND, amplitude=0.0)), ["nothing grew"])

    def call(self):
        return subprocess.run([sys.executable, SCRIPT, self.folder, "--form", "tiny", "--stability", "--program", PROGRAM],
                              capture_output=True, text=True, timeout=600)

    def test_every_rate_and_plan_is_judged_from_what_was_measured(self):
        done = self.call()
        table = (self.folder / "stability.md").read_text()
        rows = [row.split(" | ") for row in table.splitlines() if re.match(r"\| (own|split) \|", row)]
        self.assertEqual([(row[0].strip("| "), row[1]) for row in rows], [(plan, rate) for plan in ("own", "split") for rate in
                                                                         ("0.02", "0.05", "0.1", "0.2", "0.4")], done.stderr)
        self.assertEqual(done.returncode, 1 if "fail: " in table else 0, done.stderr)
        for row in rows:
            runs = [self.folder / "seed0" / "stability" / f"{row[0].strip('| ')}-{row[1]}-{controller}" for controller in ("none", "heuristic")]
            none, grown = ([line["test_accuracy"] for line in lines_of(run) if line["kind"] == "lane_result"] for run in runs)
            self.assertAlmostEqual(float(row[3]), 100 * sum(none) / 2, delta=0.0051)  # two lanes: the median is the mean
            self.assertAlmostEqual(float(row[5].split(" ")[0]), 100 * (sum(grown) - sum(none)) / 2, delta=0.0051)
            config = json.loads((runs[1] / "config.json").read_text())
            self.assertEqual((config["learning-rate"], config["controller"]), (float(row[1]), "heuristic"))
        before = {path: path.stat().st_mtime_ns for path in self.folder.rglob("metrics.jsonl")}
        self.assertEqual(self.call().returncode, done.returncode)
        self.assertEqual(before, {path: path.stat().st_mtime_ns for path in self.folder.rglob("metrics.jsonl")})

    def test_a_form_without_it_is_refused(self):
        done = subprocess.run([sys.executable, SCRIPT, self.folder, "--form", "gpu-short", "--stability"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("want --form gpu, cpu, tiny, got gpu-short", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
