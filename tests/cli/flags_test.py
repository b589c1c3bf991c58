"""Flags from outside: names, what has no effect, threads. python flags_test.py ESPALIER"""

import json
import os
import re
import tempfile

from program import TINY, Case, main

HOST = ["train", "host", "--device", "cpu", "--no-tui", *TINY]


class Names(Case):
    def config(self, *arguments):
        return json.loads(self.run_well(*arguments, "--print-config"))

    def test_of_esper_lite_mean_ours(self):
        for job in ("train ppo", "train population", "evaluate", "plan ppo"):
            config = self.config(*job.split(), "--envs", "3", "--batch-per-env", "7", "--amp-dtype", "float16",
                                 "--gpu-preload", "--device", "cpu")
            self.assertEqual([config[name] for name in ("lanes", "batch", "precision", "residency", "devices")],
                             [3, 7, "fp16", "device", "cpu"], job)
        self.assertEqual(self.config("train", "ppo", "--amp")["precision"], "auto")
        self.assertEqual(self.config("train", "host", "--devices", "cpu")["device"], "cpu")
        self.assertEqual(self.config("bench", "gather", "--envs", "3")["lanes"], 3)
        self.assertEqual(self.config("train", "ppo", "--envs", "3", "--lanes", "5", "--envs", "4")["lanes"], 4)
        self.assert_refused(["train", "ppo", "--amp", "--precision", "fp16"], "--amp and --precision", "leave one")

    def test_of_esper_lite_are_taken_by_predict_and_benchmarks(self):
        machine = {"device": "cpu", "precision": "fp16"}
        batch, lanes = {"batch": 7}, {"lanes": 3}
        jobs = {"predict": machine | batch, "bench all": machine, "bench scaling": machine, "bench layout": machine | batch,
                "bench linet": machine | batch, "bench gather": {"device": "cpu"} | batch | lanes,
                "bench population": machine | batch | lanes, "bench growing": machine | batch | lanes}
        flags = {"device": ["--devices", "cpu"], "precision": ["--amp-dtype", "float16"], "batch": ["--batch-per-env", "7"],
                 "lanes": ["--envs", "3"]}
        for job, wanted in jobs.items():
            config = self.config(*job.split(), *(word for name in wanted for word in flags[name]))
            self.assertEqual({name: config[name] for name in wanted}, wanted, job)
            if "precision" in wanted:
                self.assertEqual(self.config(*job.split(), "--amp")["precision"], "auto", job)

    def test_every_job_has_the_same_for_one_idea(self):
        texts = {job: self.run_well(*job.split(), "--help") for job in
                 ("train host", "train population", "train linet", "train ppo", "evaluate", "profile ppo")}
        for job, text in texts.items():
            for name in ("--batch", "--precision", "--threads", "--seed", "--[no-]tui"):
                self.assertIn(f"  {name} ", text, job)
            self.assertRegex(text, r"  --devices? ", job)

    def test_help_shows_the_ten_that_matter_first_then_groups(self):
        for job in ("train host", "train population", "train linet", "train ppo", "evaluate"):
            text = self.run_well(*job.split(), "--help")
            first = text[text.index("Used most:"):text.index("\n\n", text.index("Used most:"))]
            self.assertIn(len(re.findall(r"(?m)^  --", first)), (9, 10), job)
            for group in ("Data:", "Training:", "Machine:", "Run:", "Other names:", "Flags of every command:"):
                self.assertIn(f"\n{group}\n", text, job)

    def test_that_other_tools_use_find_ours(self):
        for flag, ours in (("--lr", "--learning-rate"), ("--bs", "--batch"), ("--gpu", "--device"), ("--dataset", "--data")):
            self.assert_refused(["train", "host", flag, "1"], f"unknown flag {flag}; did you mean {ours}?")
        self.assert_refused(["train", "host", "--optimizer", "adam"], "SGD", "--learning-rate")
        self.assert_refused(["train", "host", "--zzzzzz"], "unknown flag --zzzzzz")
        self.assertNotIn("did you mean", self.start("train", "host", "--zzzzzz").stderr)
        self.assertNotIn("did you mean", self.start("frobnicate").stderr)

    def test_help_and_version_are_words_too(self):
        self.assertEqual(self.run_well("help"), self.run_well("--help"))
        self.assertEqual(self.run_well("help", "train", "ppo"), self.run_well("train", "ppo", "--help"))
        self.assertEqual(self.run_well("version"), self.run_well("--version"))

    def test_no_tui_is_taken_everywhere(self):
        self.run_well("data", "info", "--no-tui", "--synthetic-train", "20", "--synthetic-test", "20")
        self.run_well("plan", "host", "--no-tui", "--device", "cpu", *TINY)
        self.run_well("evaluate", "--no-tui", "--devices", "cpu", "--lanes", "2", "--episode-length", "2", "--episodes", "1",
                      "--controllers", "none", *TINY)
        self.run_well("profile", "host", "--no-tui", "--device", "cpu", "--steps", "1", *TINY)


class Plans(Case):
    SMALL = ["--device", "cpu", "--no-tui", "--synthetic-train", "60", "--synthetic-test", "20"]

    def parts(self, *arguments):
        text = self.run_well("plan", *arguments, *self.SMALL)
        return dict(re.findall(r"(?m)^\s*(\S.*?) {2,}(\d\S* \w+)$", text))

    def test_of_ranks_are_of_one_of_them(self):
        for job in (["linet", "--data", "synthetic:rgbd", "--width", "0.0625"], ["host"]):
            of_two = self.parts(*job, "--batch", "8", "--ranks", "2")
            alone = self.parts(*job, "--batch", "4")
            new = [part for part in of_two if part not in alone]
            self.assertEqual(new, ["gradients on their way to other ranks"], job)
            self.assertLessEqual({part for part in alone if of_two[part] != alone[part]}, {"in all"}, job)
            self.assert_refused(["plan", *job, "--batch", "9", "--ranks", "2", *self.SMALL], "--batch 9", "2 ranks", "such as 10")


class NoEffect(Case):
    def test_is_refused(self):
        self.assert_refused([*HOST, "--resize", "8x8"], "--resize 8x8", "synthetic:shapes10", "--synthetic-size")
        self.assert_refused([*HOST, "--channels", "3"], "--channels 3", "folder")
        self.assert_refused([*HOST, "--device-memory", "1GiB"], "--device-memory 1.0 GiB", "GPU")
        self.assert_refused(["train", "population", "--device", "cpu", *TINY, "--validation", "0", "--controller", "heuristic"],
                            "--validation 0", "--controller none")
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_loss_that_explodes_is_told_once_and_can_be_read(self):
        result = self.start(*HOST, "--epochs", "3", "--learning-rate", "100", "--momentum", "0.99")
        warnings = [line for line in result.stderr.splitlines() if "guessing among 10 classes gives 2.30" in line]
        self.assertEqual(len(warnings), 1, result.stdout + result.stderr)
        self.assertIn("--learning-rate 100", warnings[0])
        self.assertNotRegex(result.stdout, r"loss \d{5}")

    def test_no_validation_shows_a_dash(self):
        for job in (["train", "host"], ["train", "population", "--lanes", "2"]):
            said = self.run_well(*job, "--device", "cpu", "--no-tui", *TINY, "--epochs", "1", "--validation", "0", "--run-dir", "run",
                                 "--restart", "fresh")
            line = re.search(r"(?m)^epoch 1/1 .*$", said)[0]
            self.assertRegex(line, r"validation.* accuracy -")
            self.assertNotIn(" 0.00 %", line.split("validation", 1)[1])
            with open(self.path("run/metrics.jsonl")) as lines:
                epochs = [line for line in map(json.loads, lines) if line["kind"] in ("epoch", "lane")]
            self.assertTrue(epochs and all(line["validation_accuracy"] is None for line in epochs))
        self.assertNotIn("0.00 %", self.run_well("runs", self.folder).split("best validation")[1].split("%")[0])

    def test_two_episodes_are_warned_about_and_eight_are_played(self):
        small = ["evaluate", "--devices", "cpu", "--lanes", "2", "--episode-length", "2", "--controllers", "none", *TINY]
        self.assertIn("--episodes 2: a 95 % interval over 2 means", self.start(*small, "--episodes", "2").stderr)
        self.assertNotIn("warning", self.start(*small, "--episodes", "4").stderr)
        self.assertEqual(json.loads(self.run_well("evaluate", "--print-config"))["episodes"], 8)


class Classes(Case):
    def test_are_kept_by_every_job_and_make_another_run(self):
        self.assertEqual(json.loads(self.run_well(*HOST, "--classes", "4,0-3", "--print-config"))["classes"], "0-4")
        self.run_well(*HOST, "--classes", "0-4", "--epochs", "1", "--run-dir", "run")
        with open(self.path("run/environment.json")) as file:
            self.assertEqual(len(json.load(file)["network"]["classes"]), 5)
        self.assert_refused([*HOST, "--classes", "0-5", "--epochs", "1", "--run-dir", "run"], 'classes was "0-4", now "0-5"')
        self.assert_refused([*HOST, "--classes", "0-10"], "--classes 0-10", "10 classes, 0 to 9")
        self.assert_refused([*HOST, "--classes", "a-c"], "--classes a-c", "0,3,7-9")


class Latest(Case):
    """runs/latest leads to the run that is newest when a job starts, not to the job's own."""

    EPISODES = ["--devices", "cpu", "--lanes", "2", "--episode-length", "3", *TINY]

    def config(self):
        with open(self.path("runs/latest/config.json")) as file:
            return json.load(file)

    def newest(self):
        return "runs/" + os.readlink(self.path("runs/latest"))

    def train_policy(self):
        self.run_well("train", "ppo", "--no-tui", *self.EPISODES, "--rounds", "1", "--encoder-size", "8", "--hidden-size", "8")
        return self.newest()

    def test_of_an_evaluation_is_the_policy_that_was_trained_last(self):
        policy = self.train_policy()
        self.run_well("evaluate", *self.EPISODES, "--episodes", "1", "--controllers", "none,ppo:runs/latest,static")
        compared = self.newest()
        self.assertEqual(self.config()["controllers"], f"none,ppo:{policy},static")
        self.run_well("evaluate", *self.EPISODES, "--episodes", "1", "--controllers", "none,static:runs/latest")
        self.assertEqual(self.config()["controllers"], f"none,static:{compared}")

    def test_of_a_population_is_the_policy_when_it_goes_on_too(self):
        policy = self.train_policy()
        self.run_well("train", "population", "--no-tui", "--devices", "cpu", "--lanes", "2", "--epochs", "3", *TINY, "--controller", "ppo:runs/latest")
        self.assertEqual(self.config()["controller"], f"ppo:{policy}")
        self.run_well("train", "population", "--no-tui", "--resume", "latest")

    def test_of_elsewhere_is_named_by_its_whole_path(self):
        with tempfile.TemporaryDirectory() as elsewhere:
            os.makedirs(self.path("runs"))
            os.symlink(elsewhere, self.path("runs/latest"))
            said = self.start("evaluate", *self.EPISODES, "--controllers", "ppo:runs/latest")
            self.assertNotEqual(said.returncode, 0)
            self.assertIn(os.path.realpath(elsewhere), said.stderr)  # where there is no policy


class Threads(Case):
    def test_are_what_was_asked_for_and_come_back_with_the_run(self):
        self.run_well(*HOST, "--epochs", "1", "--threads", "2", "--run-dir", "run")
        with open(self.path("run/environment.json")) as file:
            self.assertEqual(json.load(file)["threads"], 2)
        self.run_well("train", "host", "--resume", "run", "--no-tui")
        self.assert_refused(["train", "host", "--resume", "run", "--no-tui", "--threads", "1"], "threads was 2, now 1")

    def test_of_openmp_wait_briefly_unless_the_user_says_how(self):
        small = ["doctor", "--run-dir", self.folder, "--disk-size", "1MiB"]
        self.assertRegex(self.run_well(*small, OMP_WAIT_POLICY=None), r"ok +openmp +GOMP_SPINCOUNT=10000")
        self.assertRegex(self.run_well(*small, OMP_WAIT_POLICY="passive"), r"ok +openmp +OMP_WAIT_POLICY=passive")
        self.assertRegex(self.run_well(*small, OMP_WAIT_POLICY="active"), r"note +openmp +OMP_WAIT_POLICY=active.*spin")
        said = self.run_well(*small, OMP_WAIT_POLICY=None, GOMP_SPINCOUNT="7")
        self.assertRegex(said, r"ok +openmp +GOMP_SPINCOUNT=7")
        self.assertNotIn("OMP_WAIT_POLICY", said)
        self.assertRegex(said, r"(ok|note) +load +\d")

    def test_arguments_survive_the_second_start(self):
        said = self.start("data", "info", "folder:a b'c", OMP_WAIT_POLICY=None).stderr
        self.assertIn("a b'c", said)
        said = self.run_well(*HOST, "--epochs", "1", "--run-dir", "a b", OMP_WAIT_POLICY=None)
        self.assertIn("results are in a b", said)
        with open(self.path("a b/environment.json")) as file:
            self.assertIn("--run-dir 'a b'", json.load(file)["command"])


if __name__ == "__main__":
    main()
