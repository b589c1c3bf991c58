"""Runs from outside: stopping, going on, what is left behind, and making room. python runs_test.py ESPALIER"""

import json
import os
import re
import shutil
import signal
import subprocess
import time

from program import TINY, Case, environment, main

HOST = ["train", "host", "--device", "cpu", "--no-tui", *TINY]
POPULATION = ["train", "population", "--device", "cpu", "--no-tui", "--lanes", "2", *TINY]
PPO = ["train", "ppo", "--devices", "cpu", "--no-tui", "--lanes", "2", "--episode-length", "3", *TINY]
POLICY = ["--encoder-size", "8", "--hidden-size", "8"]


class Stopped(Case):
    def stop(self, *arguments):
        """Starts a run that would take long, and stops it after its first epoch."""
        process = subprocess.Popen([self.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   cwd=self.folder, env=environment())
        self.addCleanup(process.kill)
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line.startswith("epoch 1/"):
                process.send_signal(signal.SIGTERM)
        process.wait(timeout=300)
        process.stderr.close()
        process.stdout.close()
        self.assertEqual(process.returncode, 143)
        return "".join(lines)

    def command_in(self, text, before, job=("train", "host")):
        """The words after `espalier` of the command that a line offers."""
        [line] = [line for line in text.splitlines() if before in line]
        command = line.split(": espalier ", 1)[1].split()
        self.assertEqual(command[:len(job) + 1], [*job, "--resume"])
        return command

    def test_a_stopped_run_says_how_to_go_on_and_the_same_command_names_it(self):
        forever = [*HOST, "--epochs", "100000"]
        command = self.command_in(self.stop(*forever), "stopped; to go on")
        again = self.stop(*forever)
        self.assertEqual(self.command_in(again, "was stopped, and has the same configuration"), command)
        self.assertEqual(len([name for name in os.listdir(self.path("runs")) if name != "latest"]), 2)
        said = self.run_well(*command, "--epochs", "2", "--allow-change", "epochs", "--no-tui")
        self.assertIn("goes on from checkpoint", said)
        listed = self.run_well("runs")
        self.assertRegex(listed, r"stopped")
        self.assertIn("to go on with", listed)

    def test_a_stopped_comparison_says_how_to_go_on(self):
        process = subprocess.Popen([self.program, "evaluate", "--devices", "cpu", "--lanes", "2", "--episodes", "100000", "--no-tui",
                                    "--controllers", "none", "--episode-length", "2", *TINY], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   cwd=self.folder, env=environment())
        self.addCleanup(process.kill)
        while "episode 3/" not in process.stderr.readline():
            self.assertIsNone(process.poll())
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 130)
        command = self.command_in(out, "stopped; to go on", ["evaluate"])
        played = self.played(command[2])
        self.assertGreaterEqual(len(played), 4)
        self.assertIn("stopped", self.run_well("runs"))
        process = self.start(*command, "--no-tui", "--episodes", "3")
        self.assertEqual(process.returncode, 2)
        self.assertIn("episodes was 100000, now 3", process.stderr)
        self.assertEqual(self.played(command[2]), played)

    def played(self, run):
        with open(self.path(os.path.join(run, "metrics.jsonl"))) as lines:
            return [line for line in map(json.loads, lines) if line["kind"] == "evaluated_lane"]

    def test_a_finished_run_says_so_and_its_durations_add_up(self):
        self.run_well(*HOST, "--epochs", "1", "--run-dir", "run")
        first = self.result()["seconds"]
        said = self.run_well("train", "host", "--resume", "run", "--no-tui")
        self.assertIn("this run is finished", said)
        self.assertIn("--allow-change epochs", said)
        self.run_well("train", "host", "--resume", "run", "--no-tui", "--epochs", "3", "--allow-change", "epochs")
        with open(self.path("run/metrics.jsonl")) as lines:
            trained = sum(line["seconds"] for line in map(json.loads, lines) if line["kind"] == "epoch")
        self.assertGreater(self.result()["seconds"], trained)
        self.assertGreater(self.result()["seconds"], first * 0.5)

    def result(self):
        with open(self.path("run/metrics.jsonl")) as lines:
            return json.loads(lines.readlines()[-1])


class Latest(Case):
    def test_moves_with_every_run_that_began_and_with_no_other(self):
        self.run_well(*HOST, "--epochs", "1", "--run-dir", "elsewhere/run")
        self.assertTrue(os.path.samefile(self.path("runs/latest"), self.path("elsewhere/run")))
        self.run_well(*HOST, "--epochs", "1")
        newest = os.path.realpath(self.path("runs/latest"))
        self.assertEqual(os.path.dirname(newest), os.path.realpath(self.path("runs")))
        before = sorted(os.listdir(self.path("runs")))
        self.assertNotEqual(self.start(*HOST, "--data", "safetensors:none").returncode, 0)
        self.assertEqual(sorted(os.listdir(self.path("runs"))), before)
        self.assertEqual(os.path.realpath(self.path("runs/latest")), newest)

    def test_is_followed_where_it_leads_when_a_job_begins_with_its_networks(self):
        self.run_well(*POPULATION, "--epochs", "1")
        first = os.path.join("runs", os.path.basename(os.path.realpath(self.path("runs/latest"))))
        for number, name in enumerate(("latest", "runs/latest")):
            again = [*POPULATION, "--epochs", "1", "--from", name, "--run-dir", f"again{number}"]
            self.run_well(*again)
            self.assertEqual(self.config(f"again{number}")["from"], first)
            # `latest` is the run itself now; the same command goes on with it, also where it must begin anew.
            self.assertIn("this run is finished", self.run_well(*again))
            shutil.rmtree(self.path(f"again{number}/checkpoints"))
            self.assertIn("epoch 1/1", self.run_well(*again))
            self.assertEqual(self.config(f"again{number}")["from"], first)
            self.run_well(*POPULATION, "--epochs", "1", "--run-dir", first, "--restart", "fresh")

    def test_goes_on_with_more_epochs_and_the_report_shows_how_many(self):
        self.run_well(*HOST, "--epochs", "1")
        self.run_well("train", "host", "--resume", "latest", "--no-tui", "--epochs", "2", "--allow-change", "epochs")
        self.assertEqual(self.config("runs/latest")["epochs"], 2)
        self.assertIn("this run is finished", self.run_well("train", "host", "--resume", "latest", "--no-tui"))
        self.run_well("report", "runs/latest")
        with open(self.path("runs/latest/report.html")) as file:
            [page] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', file.read(), re.DOTALL)
        self.assertEqual(json.loads(page)["config"]["epochs"], 2)

    def config(self, run):
        with open(self.path(run, "config.json")) as file:
            return json.load(file)

    def test_a_failed_start_leaves_nothing_behind(self):
        self.assertNotEqual(self.start(*HOST, "--data", "safetensors:none").returncode, 0)
        self.assertNotEqual(self.start(*HOST, "--data", "safetensors:none", "--run-dir", "a/b").returncode, 0)
        self.assertEqual(os.listdir(self.folder), [])


class OtherRuns(Case):
    def test_of_another_job_are_called_what_they_are(self):
        self.run_well(*POPULATION, "--epochs", "1", "--run-dir", "run")
        what = "that is a population run"
        self.assert_refused(["train", "ppo", "--resume", "run"], what, "espalier train population --resume run")
        self.assert_refused(["train", "ppo", "--run-dir", "run"], what)
        self.assert_refused(["linet", "export", "run", "out.safetensors"], what, "train linet")
        self.assert_refused(["evaluate", "--controllers", "none,ppo:run", "--devices", "cpu"], what, "train ppo")

    def test_a_policy_brings_its_sizes(self):
        self.run_well(*PPO, *POLICY, "--rounds", "1", "--run-dir", "run")
        policy = "run/policy.safetensors"
        self.run_well(*PPO, "--rounds", "2", "--resume", policy, "--run-dir", "more")
        with open(self.path("more/config.json")) as file:
            config = json.load(file)
        self.assertEqual((config["encoder-size"], config["hidden-size"]), (8, 8))
        self.assert_refused([*PPO, "--rounds", "3", "--resume", policy, "--hidden-size", "16", "--run-dir", "other"],
                            policy, code=1)
        self.assert_refused([*PPO, "--rounds", "1", "--resume", policy, "--run-dir", "other"], "played 1 rounds already")
        self.assertFalse(os.path.exists(self.path("other")))

    def test_fresh_begins_the_run_that_resume_names_anew(self):
        self.run_well(*HOST, "--epochs", "1", "--run-dir", "run")
        with open(self.path("run/environment.json")) as file:
            before = json.load(file)["sessions"]
        said = self.run_well("train", "host", "--resume", "run", "--restart", "fresh", "--no-tui")
        self.assertNotIn("goes on from", said)
        with open(self.path("run/environment.json")) as file:
            self.assertEqual(len(json.load(file)["sessions"]), len(before))
        # And from another folder, although config.json says --run-dir run.
        os.mkdir(self.path("away"))
        moved = subprocess.run([self.program, "train", "host", "--resume", self.path("run"), "--no-tui"], cwd=self.path("away"),
                               capture_output=True, text=True, timeout=300, env=environment())
        self.assertEqual(moved.returncode, 0, moved.stderr)

    def test_restart_resume_wants_a_run(self):
        self.assert_refused([*HOST, "--restart", "resume"], "--restart resume", "--run-dir or --resume")
        self.assert_refused([*HOST, "--restart", "resume", "--run-dir", "run"], "holds no run", code=1)
        self.assertEqual(os.listdir(self.folder), [])


class Room(Case):
    def runs(self):
        return sorted(name for name in os.listdir(self.path("runs")) if name != "latest")

    def make(self, count):
        for number in range(count):
            self.run_well(*POPULATION, "--epochs", "2", "--seed", str(number))
            time.sleep(1.1)  # runs are in the order of the second that they began in
        return [os.path.basename(os.path.realpath(self.path("runs/latest"))), self.runs()]

    def test_sizes_are_listed_and_old_runs_are_removed_when_told_so(self):
        newest, before = self.make(3)
        self.assertRegex(self.run_well("runs"), r"size\n(.*\d (KiB|MiB)\n){3}")
        said = self.run_well("runs", "prune", "--keep", "1")
        self.assertIn("would remove", said)
        self.assertIn("--yes", said)
        self.assertEqual(self.runs(), before)
        os.mkdir(self.path("runs", "mine"))
        said = self.run_well("runs", "prune", "--keep", "1", "--yes")
        self.assertIn("removed", said)
        self.assertEqual(self.runs(), sorted([newest, "mine"]))
        self.assertIn("nothing to remove", self.run_well("runs", "prune", "--keep", "1", "--yes"))
        self.assertIn("nothing to remove", self.run_well("runs", "prune", "--keep", "0", "--days", "1", "--yes"))
        self.assertIn("nothing to remove", self.run_well("runs", "prune", "--keep", "0", "--state", "stopped", "--yes"))
        self.run_well("runs", "prune", "--keep", "0", "--what", "checkpoints", "--yes")
        self.assertFalse(os.path.exists(self.path("runs/latest/checkpoints")))
        self.assertTrue(os.path.exists(self.path("runs/latest/metrics.jsonl")))

    def test_a_run_that_a_process_works_in_is_not_removed(self):
        process = subprocess.Popen([self.program, *HOST, "--epochs", "100000"], stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL, cwd=self.folder, env=environment())
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        while not process.stdout.readline().startswith("epoch 1/"):
            self.assertIsNone(process.poll())
        self.assertIn("nothing to remove", self.run_well("runs", "prune", "--keep", "0", "--yes"))
        self.assertEqual(len(self.runs()), 1)

    def test_packed_metrics_are_read_by_every_command_and_gone_on_with(self):
        self.run_well(*POPULATION, "--epochs", "2", "--run-dir", "runs/one")
        listed = self.run_well("runs").split("\n")[1].rsplit(None, 2)[0]
        self.assertIn("1 finished run", self.run_well("runs", "pack"))
        self.assertFalse(os.path.exists(self.path("runs/one/metrics.jsonl")))
        self.assertTrue(os.path.exists(self.path("runs/one/metrics.jsonl.gz")))
        self.assertEqual(self.run_well("runs").split("\n")[1].rsplit(None, 2)[0], listed)
        self.run_well("report", "runs/one")
        self.run_well("train", "population", "--resume", "runs/one", "--no-tui", "--epochs", "3", "--allow-change", "epochs")
        with open(self.path("runs/one/metrics.jsonl")) as lines:
            epochs = [line["epoch"] for line in map(json.loads, lines) if line["kind"] == "epoch"]
        self.assertEqual(epochs, [1, 2, 3])

    def test_a_run_says_what_it_will_write_and_lane_lines_thin_it(self):
        said = self.run_well(*POPULATION, "--epochs", "5", "--run-dir", "all")
        self.assertRegex(said, r"(?m)^will write about \S+ \S+ of metrics and events per epoch, \S+ \S+ in all 5 epochs")
        self.run_well(*POPULATION, "--epochs", "5", "--run-dir", "few", "--lane-lines", "2")
        counts = {}
        for name in ("all", "few"):
            with open(self.path(name, "metrics.jsonl")) as lines:
                counts[name] = [line["epoch"] for line in map(json.loads, lines) if line["kind"] == "lane" and line["lane"] == 0]
        self.assertEqual(counts, {"all": [1, 2, 3, 4, 5], "few": [1, 3, 5]})

    def test_flags_before_a_command_of_runs_are_refused(self):
        self.assert_refused(["runs", "--dir", "x", "prune"], "--dir", "give it after")


if __name__ == "__main__":
    main()
