"""`espalier profile` of every job on the CPU: a trace that Perfetto reads, what the time went into, that a steady-state step
converts no layout, with growth on where the job has it, and that nothing is claimed about waits for a device that is not
there. (How often the host waits for a GPU: HostWaitsCuda.)"""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
SMALL = ["--synthetic-train", "200", "--synthetic-test", "20"]
JOBS = {
    "host": ["--device", "cpu", "--batch", "32", "--synthetic-size", "8x8"],
    "population": ["--devices", "cpu", "--lanes", "2", "--batch", "32", "--synthetic-size", "8x8"],
    "linet": ["--device", "cpu", "--batch", "16", "--width", "0.0625"],
    "ppo": ["--devices", "cpu", "--envs", "4", "--batch-per-env", "16", "--synthetic-size", "8x8", "--encoder-size", "8",
            "--hidden-size", "8", "--episode-length", "12"],
}
NO_DEVICE = "cpu is no device that the host waits for: nothing to count"


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="espalier_profile_")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def profile(self, job, *arguments, steps=1):
        return subprocess.run([PROGRAM, "profile", job, *JOBS[job], *SMALL, "--steps", str(steps), "--run-dir", self.folder,
                               *arguments], text=True, capture_output=True, timeout=300)

    def test_every_job(self):
        for job in JOBS:
            with self.subTest(job):
                result = self.profile(job)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"(?m)^aten::\S+ +\d+\.\d\d +\d+$")
                self.assertIn(NO_DEVICE, result.stdout)
                self.assertNotIn("waits per step", result.stdout)
                self.assertIn("conversions between layouts: 0\n", result.stdout)
                events = json.loads((self.folder / "trace.json").read_text())["traceEvents"]
                steps = [event for event in events if event.get("name") == "profiled step"]
                ops = [event for event in events if str(event.get("name")).startswith("aten::")]
                self.assertEqual(len(steps), 1)
                self.assertTrue(ops and all("ts" in op and "dur" in op for op in ops))

    def test_one_audit_alone(self):
        layout = self.profile("population", "--layout").stdout
        self.assertIn("conversions between layouts: 0", layout)
        self.assertNotIn("waits", layout)
        self.assertFalse((self.folder / "trace.json").exists())
        sync = self.profile("ppo", "--sync").stdout
        self.assertIn(NO_DEVICE, sync)
        self.assertNotIn("conversions", sync)

    def test_looks_at_steps_in_which_seeds_grow(self):
        population = ("population", "--epochs", "16", "--lanes", "4", "--controller", "random")
        for job, *flags in (("ppo",), ("ppo", "--controller", "random"), population):
            with self.subTest(" ".join((job, *flags))):
                result = self.profile(job, *flags, steps=6)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"(?m)^seeds in these steps: .*[A-Z]+ [1-9]")
                self.assertIn("conversions between layouts: 0\n", result.stdout)
        bare = self.profile("ppo", "--controller", "none").stdout
        self.assertIn("no seed stood in these steps", bare)

    def job(self, *arguments):
        result = subprocess.run([PROGRAM, *arguments, "--no-tui"], text=True, capture_output=True, timeout=300)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_looks_at_networks_under_what_earlier_jobs_left(self):
        """A saved policy, and a recording that is replayed or whose seeds networks begin with."""
        self.job("train", "ppo", *JOBS["ppo"], *SMALL, "--rounds", "1", "--run-dir", self.folder / "ppo")
        self.job("evaluate", *JOBS["population"], *SMALL, "--controllers", "random", "--episodes", "1", "--episode-length", "12",
                 "--run-dir", self.folder / "evaluate")
        recording = self.folder / "evaluate/recordings/1_random.jsonl"
        header, *networks = map(json.loads, recording.read_text().splitlines())
        for network in networks:
            network["seeds"] = [{"slot": header["slots"][0], "blueprint": "norm", "operator": "ADD", "amplitude": 1.0}]
        recording.write_text("".join(json.dumps(line) + "\n" for line in (header, *networks)))
        for controller in (f"ppo:{self.folder / 'ppo'}", f"replay:{recording}", f"static:{recording}"):
            with self.subTest(controller):
                result = self.profile("population", "--epochs", "12", "--controller", controller, "--sync")
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, r"(?m)^(seeds in these steps: |no seed stood in these steps)")
                if controller.startswith("static"):
                    self.assertIn("FOSSILIZED 2", result.stdout)

    def test_refuses_what_it_does_not_look_at(self):
        result = self.profile("population", "--devices", "cpu,cpu")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--devices cpu,cpu", result.stderr)
        for job, *flag in (("population", "--from", "runs/grown"), ("ppo", "--save", "policy.safetensors"),
                           ("ppo", "--reward-ab", "a.json,b.json"), ("linet", "--resume", "runs/one"), ("host", "--resume", "runs/one"),
                           ("population", "--controller", "static"), ("population", "--controller", "ppo")):
            with self.subTest(" ".join((job, *flag))):
                command = [PROGRAM, "profile", job, *flag]
                result = subprocess.run(command, text=True, capture_output=True, timeout=60, cwd=self.folder)
                self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
                self.assertIn(flag[0], result.stderr)


if __name__ == "__main__":
    unittest.main()
