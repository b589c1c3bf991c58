"""`espalier bench all` in small: what it writes, the table that is made of it, peers from a folder, a stop in the middle.
python bench_all_test.py ESPALIER"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))
from program import Case, environment, main  # noqa: E402

# In place of a Python with torch, so that no test but the first has to load it: says that it has one, and as a peer fails.
NO_PYTHON = "#!/bin/sh\ncase \"$1\" in -c) printf 2.11.0; exit 0;; esac\necho 'SomeError: this peer is not there' >&2\nexit 1\n"
# A user's own peer: notes what it was asked, and answers in the first workload alone.
PEER = """#!/bin/sh
echo "$@" >> "$NOTES"
case "$*" in *"--workload gather"*)
echo '{"name": "theirs", "shapes": "8 x 8", "note": "by hand", "median_us": 12.5, "best_us": 11, "host_us": 3, "checked": "by eye"}'
echo '{"name": "no time"}'
echo 'not a line of JSON'
echo '{"problem": "the other half is missing"}';;
esac
"""
BEGIN, END = "<!-- espalier bench table: begin -->", "<!-- espalier bench table: end -->"


class BenchAll(Case):
    def setUp(self):
        super().setUp()
        self.python = self.executable("python", NO_PYTHON)

    def executable(self, name, text):
        path = pathlib.Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def measure(self, *arguments, **changes):
        printed = self.run_well("bench", "all", "--smoke", "--device", "cpu", "--out", "results", *arguments, **changes)
        [file] = sorted(pathlib.Path(self.path("results")).iterdir())
        return printed, file, json.loads(file.read_text())

    def test_measures_every_row_beside_peers_that_made_the_same_step(self):
        printed, file, results = self.measure(OMP_NUM_THREADS="2")
        self.assertRegex(file.name, r"^[a-z0-9-]+-20\d\d-\d\d-\d\d\.json$")
        self.assertEqual((results["complete"], results["smoke"], results["precision"]), (True, True, "fp32"))
        for key in ("card", "machine", "torch", "commit", "command", "began"):
            self.assertTrue(results[key], key)
        self.assertGreater(results["rates"]["copy_bytes_per_us"], 0)
        self.assertGreater(results["rates"]["product_flops_per_us"], 0)
        rows = {row["row"]: row for row in reversed(results["rows"])}
        self.assertEqual(set(rows), {"growing: an epoch", "growing: a step", "PPO episode", "population",
                                     "LINet3, forward and backward", "gather, augmented"})
        for row in results["rows"]:
            ours = row["cases"][0]
            self.assertEqual(ours["script"], "", row["row"])
            self.assertEqual(ours["times_ours"], 1)
            self.assertTrue(row["command"].startswith("espalier "))
            for case in row["cases"]:
                self.assertEqual(len(case["times_us"]), 1)
                self.assertTrue(0 < case["low_us"] <= case["median_us"] <= case["high_us"])
            if row["row"] != "PPO episode":
                self.assertGreater(ours["floors_us"][0], 0, row["row"])
        for row, script in (("growing: a step", "growing_torch.py"), ("population", "population_torch.py"),
                            ("LINet3, forward and backward", "linet_torch.py"), ("gather, augmented", "gather_torch.py")):
            peers = [case for case in rows[row]["cases"] if case["script"] == script]
            self.assertTrue(peers, f"{row}: {rows[row]['problems']}")
            for case in peers:
                self.assertIn("our", case["checked"], row)
                self.assertIn("within", case["checked"], row)
        self.assertIn("indexing", rows["gather, augmented"]["cases"][0]["checked"])
        # An epoch and the rounds of another process are wall times: of the host's own time nothing is known.
        for row in ("growing: an epoch", "PPO episode"):
            for case in rows[row]["cases"]:
                self.assertNotIn("hosts_us", case, row)
        self.assertGreater(rows["population"]["cases"][0]["hosts_us"][0], 0)
        self.assertEqual([case["name"] for case in rows["PPO episode"]["cases"]], ["espalier", "espalier, nothing grows"])
        for case in rows["growing: an epoch"]["cases"]:
            self.assertIn("add up to", case["note"])
            self.assertGreater(case["floors_us"][0], 0)
        self.assertIn("growing_torch.py: no two networks are alike: vmap would be the loop", rows["growing: a step"]["problems"])
        self.assertTrue(any("esper-lite" in problem for problem in rows["PPO episode"]["problems"]))
        self.assertEqual(printed.count("\n| "), 1 + len(results["rows"]))  # with the heading
        self.assertIn(os.path.join("results", file.name), printed)

        docs = pathlib.Path(self.path("benchmarks.md"))
        docs.write_text(f"before\n{BEGIN}\nold\n{END}\nbehind\n")
        self.run_well("bench", "table", str(file), "--docs", str(docs))
        written = docs.read_text()
        self.assertTrue(written.startswith(f"before\n{BEGIN}\n") and written.endswith(f"\n{END}\nbehind\n"))
        self.assertNotIn("old", written)
        self.assertIn(self.run_well("bench", "table", str(file)), written)
        self.run_well("bench", "table", str(file), "--docs", str(docs))
        self.assertEqual(docs.read_text(), written)  # again: the same

    def test_runs_every_script_of_a_folder_and_says_which_peer_failed(self):
        notes = self.path("notes")
        self.executable("peers/theirs", PEER)
        pathlib.Path(self.path("peers", "notes.txt")).write_text("not a program")
        _, _, results = self.measure("--rows", "gather,ppo", "--peer-dir", "peers", ESPALIER_PYTHON=self.python, NOTES=notes)
        asked = pathlib.Path(notes).read_text().splitlines()
        self.assertEqual(sorted(line.split()[1] for line in asked), ["gather", "ppo"])
        self.assertTrue(all("--smoke" in line and line.startswith("--workload ") for line in asked))
        gather = next(row for row in results["rows"] if row["row"].startswith("gather"))
        theirs = next(case for case in gather["cases"] if case["name"] == "theirs")
        self.assertEqual((theirs["script"], theirs["median_us"], theirs["checked"]), ("theirs", 12.5, "by eye"))
        problems = "\n".join(gather["problems"])
        for part in ("gather_torch.py failed: SomeError: this peer is not there", "theirs: a line that is no case",
                     '{"name": "no time"}', "theirs: the other half is missing"):
            self.assertIn(part, problems)

    def test_keeps_an_earlier_file(self):
        for expected in (1, 2):
            self.run_well("bench", "all", "--smoke", "--device", "cpu", "--rows", "population", "--no-peers", "--out", "results")
            self.assertEqual(len(os.listdir(self.path("results"))), expected)

    def test_stopped_in_the_middle_keeps_what_was_measured(self):
        # The second row's peer never ends.
        hangs = self.executable("hangs", "#!/bin/sh\ncase \"$1\" in -c) printf 2.11.0; exit 0;; esac\n"
                                         "case \"$*\" in *gather_torch.py*) : > here; exec sleep 1000;; esac\nexit 1\n")
        process = subprocess.Popen([self.program, "bench", "all", "--smoke", "--device", "cpu", "--rows", "population,gather",
                                    "--out", "results"], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                   env=environment(ESPALIER_PYTHON=hangs))
        self.addCleanup(process.kill)
        while not os.path.exists(self.path("here")):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 130, errors)
        [file] = pathlib.Path(self.path("results")).iterdir()
        results = json.loads(file.read_text())
        self.assertFalse(results["complete"])
        self.assertEqual({row["row"] for row in results["rows"]}, {"population"})
        self.assertIn("stopped before everything", self.run_well("bench", "table", str(file)))

    def test_refuses_what_it_cannot_use(self):
        self.assert_refused(["bench", "all", "--rows", "populations"], "--rows 'populations'", "population")
        self.assert_refused(["bench", "all", "--smoke", "--device", "cpu", "--rows", "gather", "--out", "results", "--peer-dir", "none"],
                            "--peer-dir 'none'", "folder")
        pathlib.Path(self.path("file")).write_text("{}")
        self.assert_refused(["bench", "all", "--out", "file"], "--out 'file'", "folder")
        self.assert_refused(["bench", "table", "none.json"], "'none.json'", "espalier bench all")
        self.assert_refused(["bench", "table", "file"], "'file'", "format 1")
        pathlib.Path(self.path("wrong.json")).write_text('{"format": 1, "rows": [{"cases": [{"times_us": ["fast"]}]}]}')
        self.assert_refused(["bench", "table", "wrong.json"], "wrong.json", "times_us", '"fast"', code=1)
        pathlib.Path(self.path("good.json")).write_text('{"format": 1}')
        self.assert_refused(["bench", "table", "good.json", "--docs", "file"], "'file'", BEGIN, END)
        self.assertEqual(pathlib.Path(self.path("file")).read_text(), "{}")


if __name__ == "__main__":
    main()
