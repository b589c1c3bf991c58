"""The first thing a newcomer sees: growth wins in `espalier demo`, by the run's own numbers. python demo_test.py ESPALIER"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = ""


class Demo(unittest.TestCase):
    def test_growth_wins_and_the_table_says_what_the_run_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            done = subprocess.run([PROGRAM, "demo", "--devices", "cpu", "--run-dir", run], capture_output=True, text=True,
                                  timeout=1200)
            self.assertEqual(done.returncode, 0, done.stderr)
            rows = {}
            for name in ("without growth", "with growth", "difference"):
                row = re.search(rf"^{name} +([+-]?[\d.]+)[ %]* \+- ([\d.]+)", done.stdout, re.MULTILINE)
                self.assertTrue(row, done.stdout)
                rows[name] = [float(number) for number in row.groups()]
            gain, half_width = rows["difference"]
            self.assertGreater(gain, half_width, done.stdout)  # the interval is clear of zero
            self.assertAlmostEqual(gain, rows["with growth"][0] - rows["without growth"][0], delta=0.11)

            lanes = {"none": [], "heuristic": []}
            with open(os.path.join(run, "metrics.jsonl")) as lines:
                for line in map(json.loads, lines):
                    if line["kind"] == "evaluated_lane":
                        lanes[line["controller"]].append(line["test_accuracy"])
            for name, controller in (("without growth", "none"), ("with growth", "heuristic")):
                mean = 100 * sum(lanes[controller]) / len(lanes[controller])
                self.assertAlmostEqual(rows[name][0], mean, delta=0.051)

            page = re.search(r"page that shows it: (.*)", done.stdout).group(1)
            self.assertTrue(os.path.isfile(page), page)
            self.assertIn("espalier train population", done.stdout)

    def test_one_that_is_stopped_says_how_to_go_on(self):
        with tempfile.TemporaryDirectory() as folder:
            run = os.path.join(folder, "run")
            process = subprocess.Popen([PROGRAM, "demo", "--devices", "cpu", "--run-dir", run], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                       text=True)
            self.addCleanup(process.kill)
            said = process.stdout.readline()  # when it begins
            self.assertIn("networks of", said)
            process.send_signal(signal.SIGINT)
            said, errors = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 130, errors)
            self.assertIn(f"stopped; to go on: espalier evaluate --resume {run}\n", said)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
