"""Every peer of the benchmarks once, small and on the CPU: each checks itself, and prints what the harness reads."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

PEERS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "peers"


def run(script, *arguments):
    return subprocess.run([sys.executable, str(PEERS / script), "--smoke", "--device", "cpu", *arguments],
                          capture_output=True, text=True, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))


class PeersTest(unittest.TestCase):
    def expect_cases(self, result, names):
        self.assertEqual(result.returncode, 0, result.stderr)
        cases = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([case["name"] for case in cases], names)
        for case in cases:
            self.assertTrue(case["shapes"] and case["note"])
            self.assertGreaterEqual(case["median_us"], case["best_us"])
            self.assertGreater(case["best_us"], 0)
            self.assertGreater(case["host_us"], 0)

    def test_torch_trains_a_population(self):
        self.expect_cases(run("population_torch.py", "--dtype", "fp32"),
                          ["PyTorch, a loop over networks", "PyTorch, vmap + compile"])

    def test_torch_compares_layouts(self):
        self.expect_cases(run("layout_torch.py", "--dtype", "fp32"),
                          ["PyTorch, NCHW", "PyTorch, channels-last"] * 2)

    def test_jax_trains_a_population_or_says_that_it_is_not_there(self):
        result = run("population_jax.py")
        if result.returncode == 3:
            self.assertIn("JAX", json.loads(result.stderr)["problem"])
            self.assertEqual(result.stdout, "")
        else:
            self.expect_cases(result, ["JAX, vmap + jit"])


if __name__ == "__main__":
    unittest.main(argv=["peers_test.py"])
