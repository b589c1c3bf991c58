"""The program from outside: what it prints where, its exit codes, its files. python cli_test.py ESPALIER"""

import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

PROGRAM = ""
SMALL = ["--synthetic-train", "200", "--synthetic-test", "50"]


def environment(**changes):
    env = dict(os.environ, TERM="xterm")
    for name in ("NO_COLOR", "COLUMNS", "CUBLAS_WORKSPACE_CONFIG"):
        env.pop(name, None)
    env.update(changes)
    return env


def run(*arguments, **changes):
    return subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300,
                          stdin=subprocess.DEVNULL, env=environment(**changes))


def run_on_terminal(*arguments, columns=80, **changes):
    """Exit code and all that a terminal (standard output and error) was given."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen([PROGRAM, *arguments], stdin=terminal, stdout=terminal, stderr=terminal,
                               env=environment(**changes))
    os.close(terminal)
    text = b""
    while True:
        ready, _, _ = select.select([controller], [], [], 300)
        try:
            piece = os.read(controller, 65536) if ready else b""
        except OSError as error:  # the terminal's other end was closed
            if error.errno != errno.EIO:
                raise
            piece = b""
        if not piece:
            break
        text += piece
    os.close(controller)
    return process.wait(timeout=300), text.decode()


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def assert_error(self, result, code, *parts):
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(result.stdout, "")
        lines = result.stderr.splitlines()
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertTrue(lines[0].startswith("espalier: error: "), lines[0])
        for part in parts:
            self.assertIn(part, lines[0])


class Help(Case):
    def test_goes_to_standard_output(self):
        for arguments in (["--help"], ["-h"], ["data", "--help"], ["data", "info", "--help"],
                          ["data", "convert", "-h"], ["train", "host", "-h"], ["bench", "gather", "-h"],
                          ["bench", "load", "-h"], ["plan", "host", "-h"], ["doctor", "--help"]):
            result = run(*arguments)
            self.assertEqual((result.returncode, result.stderr), (0, ""), arguments)
            self.assertIn("Usage: espalier", result.stdout)

    def test_has_examples_and_commands(self):
        text = run("--help").stdout
        for part in ("Examples:", "espalier data convert", "data ", "train ", "bench ", "plan ", "doctor "):
            self.assertIn(part, text)

    def test_shows_default_range_and_choices(self):
        text = re.sub(r"\s+", " ", run("data", "info", "--help").stdout)
        for part in ("SRC, --data SRC", "default 10000; from 1 to 100000000", "--on-bad-sample error|skip",
                     "default error"):
            self.assertIn(part, text)

    def test_version_names_commit_torch_and_cuda(self):
        result = run("--version")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertRegex(result.stdout, r"\Aespalier \d+\.\d+\.\d+ \(commit \w+\)\ntorch \d+\.\d+.*\nCUDA .+\n\Z")


class Usage(Case):
    def test_unknown_names_are_refused_with_the_nearest_one(self):
        self.assert_error(run("dtaa"), 2, "unknown command 'dtaa'", "did you mean data?")
        self.assert_error(run("data", "infos"), 2, "unknown command 'infos'", "did you mean info?")
        self.assert_error(run("data", "info", "--resise", "4x4"), 2, "unknown flag --resise",
                          "did you mean --resize?")
        self.assert_error(run("data", "info", "--resise=4x4"), 2, "did you mean --resize?")

    def test_a_missing_command_or_value_is_refused(self):
        self.assert_error(run(), 2, "a command is missing", "data", "doctor")
        self.assert_error(run("data"), 2, "a command is missing", "info", "convert")
        self.assert_error(run("data", "info", "--resize"), 2, "--resize")
        self.assert_error(run("data", "convert", "synthetic:shapes10"), 2, "OUT is missing")

    def test_a_bad_value_is_refused(self):
        self.assert_error(run("data", "info", "--synthetic-train", "0"), 2, "--synthetic-train",
                          "want an integer from 1 to 100000000, got 0")
        self.assert_error(run("data", "info", "--on-bad-sample", "skp"), 2, "did you mean skip?")
        self.assert_error(run("data", "info", "--color", "red"), 2, "--color", "auto, always, never")

    def test_a_list_that_names_one_twice_or_none_is_refused_before_data_is_read(self):
        missing = "safetensors:" + self.path("none")
        run_dir = self.path("run")
        for command in (["train", "linet", "--run-dir", run_dir], ["plan", "linet"],
                        ["profile", "linet", "--run-dir", run_dir]):
            for streams, part in (("rgb,rgb", "names 'rgb' twice"), ("rgb,", "empty name")):
                self.assert_error(run(*command, "--data", missing, "--streams", streams), 2,
                                  f"--streams '{streams}'", part)
        self.assert_error(run("train", "linet", "--data", missing, "--rates", "1,1,", "--run-dir", run_dir), 2,
                          "--rates '1,1,'", "got ''")
        evaluate = ["evaluate", "--data", missing, "--run-dir", run_dir, "--controllers"]
        self.assert_error(run(*evaluate, "random,none,random"), 2, "--controllers", "names 'random' twice")
        self.assert_error(run(*evaluate, "random,"), 2, "--controllers", "empty name")
        for job in ("population", "ppo"):
            self.assert_error(run("train", job, "--data", missing, "--run-dir", run_dir, "--devices", "cpu,"), 2,
                              "device ''")
        for slots, part in (("r0c0,r0c0", "names 'r0c0' twice"), ("r0c0,", "empty name")):
            self.assert_error(run("train", "ppo", "--data", missing, "--run-dir", run_dir, "--slots", slots), 2,
                              f"--slots '{slots}'", part)
        self.assertFalse(os.path.exists(run_dir))

    def test_a_stream_that_the_data_has_not_is_refused(self):
        result = run("train", "linet", *SMALL, "--streams", "rgb,infrared", "--run-dir", self.path("run"), "--no-tui")
        self.assertEqual(result.returncode, 2)
        last = result.stderr.splitlines()[-1]  # after those of the progress
        self.assertEqual(last, "espalier: error: --streams 'rgb,infrared': the data has no field 'infrared', only rgb, "
                               "depth, orth")
        self.assertFalse(os.path.exists(self.path("run")))

    def test_a_failed_run_is_1(self):
        self.assert_error(run("data", "info", "safetensors:" + self.path("none")), 1, "none")

    def test_output_that_cannot_be_written_is_1(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        with open("/dev/full", "w") as full:
            result = subprocess.run([PROGRAM, "--help"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(result.returncode, 1)
        self.assertIn("standard output", result.stderr)


class Configuration(Case):
    def config(self, *arguments):
        result = run(*arguments, "--print-config")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def write(self, text):
        file = self.path("config.json")
        with open(file, "w") as out:
            out.write(text)
        return file

    def test_is_complete_and_comes_back(self):
        config = self.config("data", "info", "folder:x", "--resize", "8x8", "--data-seed", str(2**64 - 1))
        self.assertEqual(config["data"], "folder:x")
        self.assertEqual(config["resize"], "8x8")
        self.assertEqual(config["data-seed"], 2**64 - 1)
        self.assertEqual(config["synthetic-train"], 10000)
        file = self.write(json.dumps(config))
        self.assertEqual(self.config("data", "info", "--config-json", file), config)

    def test_flags_win_over_the_file_and_the_file_over_defaults(self):
        file = self.write('{"synthetic-train": 5, "synthetic-test": 6, "force": true}')
        for order in (["--config-json", file, "--synthetic-train", "7", "--no-force"],
                      ["--synthetic-train", "7", "--no-force", "--config-json", file]):
            config = self.config("data", "convert", "synthetic:shapes10", "x", *order)
            self.assertEqual((config["synthetic-train"], config["synthetic-test"], config["force"]), (7, 6, False))
            self.assertEqual(config["synthetic-size"], "32x32")

    def test_a_bad_file_is_refused(self):
        for text, part in (('{"reszie": 1}', "did you mean resize?"), ('{"synthetic-train": "5"}', "want an integer"),
                           ('{"synthetic-train": 0}', "got 0"), ("{", "not JSON"), ("[]", "one JSON object"),
                           ('{"data": "a", "data": "b"}', "twice"), ('{"on-bad-sample": "skp"}', "did you mean skip")):
            file = self.write(text)
            self.assert_error(run("data", "info", "--config-json", file), 2, file, part)
        self.assert_error(run("data", "info", "--config-json", self.path("none")), 2, self.path("none"))

    def test_is_refused_when_wrong_even_if_only_printed(self):
        self.assert_error(run("data", "info", "--synthetic-train", "0", "--print-config"), 2, "--synthetic-train")


class Data(Case):
    def test_info_prints_all_of_a_dataset(self):
        result = run("data", "info", "synthetic:shapes10", *SMALL)
        self.assertEqual(result.returncode, 0, result.stderr)
        for pattern in (r"train +200 +\S+ KiB", r"test +50 ", r"uint8 +32 x 32 x 3", r"10 classes", r"standard deviation",
                        r"0 samples skipped"):
            self.assertRegex(result.stdout, pattern)
        counts = re.findall(r"^ +\d+  \S.*?  +(\d+) +(\d+)$", result.stdout, re.MULTILINE)
        self.assertEqual((sum(int(a) for a, _ in counts), sum(int(b) for _, b in counts)), (200, 50))

    def test_convert_comes_back_the_same(self):
        file = self.path("a.safetensors")
        result = run("data", "convert", "synthetic:shapes10", file, *SMALL)
        self.assertEqual(result.returncode, 0, result.stderr)
        size = os.path.getsize(file)
        self.assertGreater(size, 250 * 32 * 32 * 3)
        self.assertRegex(result.stdout, rf"{size} bytes .* in \d+\.\d+ s")
        self.assertEqual(os.listdir(self.folder), ["a.safetensors"])
        # All but the first line, which names the source, is the same.
        tables = [run("data", "info", source, *SMALL).stdout.split("\n", 1)[1]
                  for source in ("synthetic:shapes10", "safetensors:" + file)]
        self.assertEqual(tables[0], tables[1])
        again = self.path("b.safetensors")
        self.assertEqual(run("data", "convert", "safetensors:" + file, again).returncode, 0)
        with open(file, "rb") as first, open(again, "rb") as second:
            header = struct.unpack("<Q", first.read(8))[0]
            second_header = struct.unpack("<Q", second.read(8))[0]
            first.seek(8 + header)
            second.seek(8 + second_header)
            self.assertEqual(first.read(), second.read())

    def test_convert_overwrites_only_when_forced(self):
        file = self.path("a.safetensors")
        with open(file, "w") as out:
            out.write("mine")
        self.assert_error(run("data", "convert", "synthetic:shapes10", file, *SMALL), 2, file, "--force")
        with open(file) as kept:
            self.assertEqual(kept.read(), "mine")
        self.assertEqual(run("data", "convert", "synthetic:shapes10", file, "--force", *SMALL).returncode, 0)
        self.assertGreater(os.path.getsize(file), 1000)

    def test_convert_refuses_a_directory_that_is_not_there(self):
        self.assert_error(run("data", "convert", "synthetic:shapes10", self.path("no/a.safetensors")), 2,
                          "does not exist")

    def test_a_failed_convert_leaves_nothing(self):
        bad = self.path("bad")
        with open(bad, "w") as out:
            out.write("no safetensors file")
        self.assert_error(run("data", "convert", "safetensors:" + bad, self.path("a")), 1, bad)
        self.assertEqual(os.listdir(self.folder), ["bad"])


class Screen(Case):
    def convert(self, runner, *arguments, **changes):
        return runner("data", "convert", "synthetic:shapes10", self.path("a"), "--force", *SMALL, *arguments, **changes)

    def test_elsewhere_there_are_plain_lines(self):
        result = self.convert(run)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stderr, r"(?m)^.+: \S+ in \d+\.\d s$")
        for text in (result.stdout, result.stderr):
            self.assertNotIn("\r", text)
            self.assertNotIn("\033", text)

    def test_a_terminal_shows_a_bar(self):
        code, text = self.convert(run_on_terminal)
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"\r[^\r\n]+ \[\S*=+\S*\] 100 %")
        self.assertIn("\033[32m", text)

    def test_a_narrow_terminal_is_not_overrun(self):
        code, text = self.convert(run_on_terminal, columns=40, NO_COLOR="1")
        self.assertEqual(code, 0, text)
        bars = [line for line in re.split(r"[\r\n]+", text) if " %  " in line]
        self.assertTrue(bars, text)
        self.assertLess(max(map(len, bars)), 40)

    def test_no_color_wins_over_all_but_a_flag(self):
        _, text = self.convert(run_on_terminal, NO_COLOR="1")
        self.assertNotIn("\033", text)
        self.assertIn(" 100 %", text)
        _, text = self.convert(run_on_terminal, "--color", "always", NO_COLOR="1")
        self.assertIn("\033[32m", text)
        _, text = self.convert(run_on_terminal, "--color", "never")
        self.assertNotIn("\033", text)
        _, text = self.convert(run_on_terminal, NO_COLOR="")
        self.assertIn("\033[32m", text)

    def test_a_dumb_terminal_gets_plain_lines(self):
        _, text = self.convert(run_on_terminal, TERM="dumb")
        self.assertNotIn("\033", text)
        self.assertIsNone(re.search(r"\r[^\n]", text))

    def test_an_error_is_coloured_only_on_a_terminal(self):
        code, text = run_on_terminal("nothing")
        self.assertEqual(code, 2)
        self.assertIn("\033[31merror:", text)
        self.assertNotIn("\033", run("nothing").stderr)


class Doctor(Case):
    def test_works_without_a_gpu(self):
        result = run("doctor", "--run-dir", self.folder, "--disk-size", "1MiB", CUDA_VISIBLE_DEVICES="")
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        names = set()
        for line in result.stdout.splitlines():
            state, name, _ = re.fullmatch(r"(ok|note) +(\S+) +(\S.*)", line).groups()
            names.add(name)
            if state == "note":
                self.assertIn("; ", line, "what to do is missing")
        self.assertLessEqual({"torch", "torch_cuda", "cublas", "choices", "cpu", "load", "openmp", "disk", "python"}, names)
        self.assertEqual(os.listdir(self.folder), [])

    def test_the_program_sets_the_cublas_workspace_and_respects_the_users(self):
        small = ["doctor", "--run-dir", self.folder, "--disk-size", "1MiB"]
        self.assertRegex(run(*small).stdout, r"ok +cublas +CUBLAS_WORKSPACE_CONFIG=:4096:8\n")
        self.assertRegex(run(*small, CUBLAS_WORKSPACE_CONFIG=":0:0").stdout, r"note +cublas .*=:0:0; .*unset it")

    def test_a_disk_that_cannot_be_written_is_broken(self):
        result = run("doctor", "--run-dir", "/proc", "--disk-size", "1MiB")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stdout, r"broken +disk .*/proc")


class Ppo(Case):
    TINY = ["--devices", "cpu", "--synthetic-train", "60", "--synthetic-test", "20", "--synthetic-size", "8x8",
            "--envs", "2", "--batch-per-env", "9", "--episode-length", "4", "--crop-pad", "1"]
    POLICY = ["--encoder-size", "8", "--hidden-size", "8"]

    def train(self, runner, *arguments):
        return runner("train", "ppo", *self.TINY, *self.POLICY, "--run-dir", self.path("run"), *arguments)

    def test_trains_saves_resumes_and_evaluates(self):
        file = self.path("policy.safetensors")
        result = self.train(run, "--rounds", "2", "--save", file, "--gpu-preload", "--amp", "--no-tui")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^round 2/2  return \S+  accuracy \S+ %")
        self.assertIn("fp32", result.stdout)  # --amp on the CPU
        self.assertTrue(result.stdout.rstrip().endswith(self.path("run")), result.stdout)
        self.assertNotIn("\033", result.stdout)
        result = run("train", "ppo", *self.TINY, *self.POLICY, "--rounds", "3", "--resume", file,
                     "--run-dir", self.path("more"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("goes on after round 2", result.stdout)
        result = run("evaluate", *self.TINY, "--episodes", "1", "--controllers", f"none,random,ppo:{file}",
                     "--run-dir", self.path("evaluated"))
        self.assertEqual(result.returncode, 0, result.stderr)
        for name in ("none", "random", "ppo:"):
            self.assertRegex(result.stdout, rf"(?m)^{name}\S* +\S+ \+- \S+")

    def test_names_the_run_that_it_goes_on_with(self):
        self.assertEqual(self.train(run, "--rounds", "1", "--no-tui").returncode, 0)
        result = self.train(run, "--rounds", "2", "--allow-change", "rounds", "--no-tui")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^goes on after round 1 of \S*run$")

    def test_records_a_round_for_perfetto(self):
        result = self.train(run, "--rounds", "2", "--torch-profiler", "--torch-profiler-dir", self.path("traces"),
                            "--torch-profiler-summary", "--no-tui")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^aten::\S+ +\d+\.\d\d +\d+$")
        with open(self.path("traces") + "/trace.json") as trace:
            names = {event.get("name") for event in json.load(trace)["traceEvents"]}
        self.assertTrue(any(name and name.startswith("aten::") for name in names))

    def test_prints_the_configuration_that_it_reads_again(self):
        printed = self.train(run, "--rounds", "7", "--slots", "r0c0", "--print-config")
        self.assertEqual(printed.returncode, 0, printed.stderr)
        config = json.loads(printed.stdout)
        self.assertEqual((config["rounds"], config["slots"], config["lanes"]), (7, "r0c0", 2))
        file = self.path("config.json")
        with open(file, "w") as out:
            out.write(printed.stdout)
        again = run("train", "ppo", "--config-json", file, "--rounds", "8", "--print-config")
        self.assertEqual(json.loads(again.stdout), dict(config, rounds=8))

    def test_refuses_what_cannot_be(self):
        self.assert_error(run("train", "ppo", "--episode-length", "1"), 2, "--episode-length", "got 1")
        self.assert_error(run("evaluate", *self.TINY, "--controllers", "clever", "--run-dir", self.path("e"),
                              "--synthetic-train", "30"), 2, "'clever'")


class Runs(Case):
    TINY = ["--device", "cpu", "--synthetic-train", "60", "--synthetic-test", "20", "--synthetic-size", "8x8", "--batch", "18",
            "--crop-pad", "1"]

    def run_here(self, *arguments):
        result = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, timeout=300, cwd=self.folder,
                                stdin=subprocess.DEVNULL, env=environment())
        return result

    def test_resume_latest_goes_on_with_what_was_changed(self):
        for arguments in (["--epochs", "2", *self.TINY], ["--resume", "latest", "--epochs", "3", "--allow-change", "epochs"],
                          ["--resume", "latest"]):
            result = self.run_here("train", "host", "--no-tui", *arguments)
            self.assertEqual(result.returncode, 0, result.stderr)
        latest = os.path.join(self.folder, "runs", "latest")
        with open(os.path.join(latest, "config.json")) as file:
            self.assertEqual(json.load(file)["epochs"], 3)
        with open(os.path.join(latest, "report.html")) as page:
            self.assertRegex(page.read(), r'"epochs":\s*3\b')
        self.assertIn("3 of 3 epochs", self.run_here("runs").stdout)

    def inspected(self, *arguments):
        result = self.run_here(*arguments, *self.TINY, "--run-dir", "inspected", "--restart", "fresh")
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.run_here("inspect", "inspected").stdout

    def test_inspect_names_the_best_checkpoint(self):
        result = self.run_here("train", "host", "--no-tui", "--epochs", "4", *self.TINY, "--keep-checkpoints", "1", "--run-dir", "run")
        self.assertEqual(result.returncode, 0, result.stderr)
        with open(self.path("run/metrics.jsonl")) as lines:
            scores = [line["validation_accuracy"] for line in map(json.loads, lines) if line["kind"] == "epoch"]
        best = f"{3 * (1 + scores.index(max(scores))):012}"  # three batches an epoch
        shown = self.run_here("inspect", f"run/checkpoints/{best}/")
        self.assertEqual(shown.returncode, 0, shown.stderr)
        self.assertIn("\nbest: this one\n", shown.stdout)
        self.assertIn(f"\nscore: {max(scores)}\n", shown.stdout)
        self.assertIn("\nscore: none: a comparison has no score\n", self.inspected("evaluate", "--controllers", "none", "--lanes", "2",
                                                                               "--episode-length", "2", "--episodes", "1"))
        self.assertIn("or after one that was not validated\n", self.inspected("train", "host", "--no-tui", "--epochs", "1", "--validation", "0"))
        shown = self.run_here("inspect", "run").stdout
        self.assertIn("best: this one" if best.endswith("12") else f"best: {best}, score {max(scores)}", shown)


class Convolutions(Case):
    """Every job that takes --convolutions reads them."""

    def test_a_file_that_is_not_there_is_named(self):
        data = ["--synthetic-train", "60", "--synthetic-test", "20", "--convolutions", self.path("none.json"), "--run-dir", self.path("run")]
        for job, device in (("train host", "--device"), ("train population", "--devices"), ("train linet", "--device"),
                            ("train ppo", "--devices"), ("evaluate", "--devices"), ("profile host", "--device"),
                            ("profile population", "--devices"), ("profile linet", "--device"), ("profile ppo", "--devices")):
            self.assert_error(run(*job.split(), device, "cpu", *data), 2, "--convolutions", "none.json", "cannot be read")


class Signals(Case):
    def interrupted(self, number):
        process = subprocess.Popen([PROGRAM, "train", "host", "--device", "cpu", "--epochs", "100000", *SMALL,
                                    "--run-dir", self.path("run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True, env=environment())
        self.addCleanup(process.kill)
        # The first epoch's line shows that the job is well on its way.
        while not process.stdout.readline().lstrip().startswith("epoch 1/"):
            self.assertIsNone(process.poll())
        process.send_signal(number)
        _, err = process.communicate(timeout=300)
        self.assertIn("stopping", err)
        self.assertNotIn("error:", err)
        return process.returncode

    def test_an_evaluation_whose_data_is_loading_says_that_nothing_is_left(self):
        for samples in ("20000", "200000"):  # where the first were there before the signal
            run_dir = self.path(f"run{samples}")
            process = subprocess.Popen([PROGRAM, "evaluate", "--devices", "cpu", "--lanes", "2", "--episode-length", "2", "--synthetic-size",
                                        "16x16", "--synthetic-train", samples, "--run-dir", run_dir], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True, env=environment())
            self.addCleanup(process.kill)
            while not os.path.exists(os.path.join(run_dir, "lock")):
                self.assertIsNone(process.poll())
                time.sleep(0.005)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 130, err)
            if "stopped; to go on: " not in out:
                break
        self.assertIn("stopped before the run began", out)
        self.assertFalse(os.path.exists(run_dir))

    def test_the_comparison_of_two_rewards_says_how_to_go_on(self):
        for rule in ("shaped", "sparse"):
            with open(self.path(f"{rule}.json"), "w") as file:
                json.dump({"reward": rule}, file)
        process = subprocess.Popen([PROGRAM, "train", "ppo", "--no-tui", *Ppo.TINY, *Ppo.POLICY, "--envs", "4", "--episode-length", "40",
                                    "--rounds", "1", "--reward-ab", f"{self.path('shaped.json')},{self.path('sparse.json')}", "--run-dir",
                                    self.path("run")], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment())
        self.addCleanup(process.kill)
        while not os.path.exists(self.path("run/evaluate/metrics.jsonl")):
            self.assertIsNone(process.poll())
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=300)
        self.assertEqual(process.returncode, 130, err)
        self.assertIn(f"stopped; to go on: espalier evaluate --resume {self.path('run/evaluate')}\n", out)

    def test_ctrl_c_is_130(self):
        self.assertEqual(self.interrupted(signal.SIGINT), 130)

    def test_sigterm_is_143(self):
        self.assertEqual(self.interrupted(signal.SIGTERM), 143)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python cli_test.py ESPALIER [unittest arguments]")
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
