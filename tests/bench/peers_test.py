"""Every peer of the benchmarks once, small and on the CPU: each checks itself, and prints what the harness reads."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PEERS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "peers"


def start(script, *arguments):
    return subprocess.run([sys.executable, str(PEERS / script), *arguments],
                          capture_output=True, text=True, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))


def run(script, *arguments):
    return start(script, "--smoke", "--device", "cpu", *arguments)


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
                          ["PyTorch, a loop over networks", "PyTorch, fused modules", "PyTorch, fused modules + compile",
                           "PyTorch, vmap + compile"])

    def test_processes_share_networks_out_and_are_timed_together(self):
        # Without MPS, which needs a GPU: the same processes, on the CPU.
        code = """if __name__ == "__main__":
            import json, torch
            from mps_processes import measure_processes, mps_server
            from population_torch import make_share, shares_of
            assert shares_of(5, 2) == [3, 2]
            shares = [(lanes, 4, 4, torch.float32, "cpu") for lanes in shares_of(3, 2)]
            print(json.dumps(measure_processes(make_share, shares, {}, samples=2)))
            try:
                with mps_server():
                    pass
            except RuntimeError as error:
                print(error)"""
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "processes.py")
            script.write_text("import sys\nsys.path.insert(0, %r)\n%s\n" % (str(PEERS), code))
            result = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300,
                                    env=dict(os.environ, OMP_NUM_THREADS="1", PATH="/usr/bin:/bin"))
        self.assertEqual(result.returncode, 0, result.stderr)
        timing, reason = result.stdout.splitlines()
        self.assertGreater(json.loads(timing)["best_us"], 0)
        self.assertIn("mps-control", reason.lower().replace(" ", "-"))

    def test_torch_compares_layouts(self):
        self.expect_cases(run("layout_torch.py", "--dtype", "fp32"),
                          ["PyTorch, NCHW", "PyTorch, channels-last"] * 2)

    def test_torch_runs_linet(self):
        self.expect_cases(run("linet_torch.py", "--dtype", "fp32"), ["PyTorch, eager NCHW", "PyTorch, eager NHWC"])

    def test_linet_reference_in_float32_is_the_one_in_float64_rounded(self):
        from safetensors.numpy import load_file
        with tempfile.TemporaryDirectory() as folder:
            files = {}
            for dtype in ("float64", "float32"):
                path = os.path.join(folder, dtype)
                result = start("linet_torch.py", "--reference", path, "--dtype", dtype, "--stages", "1,1", "--widths", "4,6",
                               "--size", "33x32", "--batch", "4", "--classes", "5", "--blank")
                self.assertEqual(result.returncode, 0, result.stderr)
                files[dtype] = load_file(path)
        want, got = files["float64"], files["float32"]
        self.assertEqual(got.keys(), want.keys())
        self.assertLess(want["keep"].sum(), want["keep"].size)
        for name, right in want.items():
            self.assertEqual(got[name].shape, right.shape, name)
            if right.dtype != "float64":
                self.assertTrue((got[name] == right).all(), name)
            elif name.startswith(("state.", "input.")):
                self.assertTrue((got[name] == right.astype("float32")).all(), name)
            else:
                # 2^-24 a rounding, some dozens of them one after another; what is zero stays so.
                self.assertLessEqual(abs(got[name] - right).max(), 2e-5 * abs(right).max(), name)

    def test_linet_gradients_under_blanking_match_finite_differences(self):
        sys.path.insert(0, str(PEERS))
        import torch
        import linet_torch
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)
        torch.manual_seed(9)
        network = linet_torch.LINet("basic", [1, 1], [4, 6], [3, 1, 2], 5)
        linet_torch.perturb(network)
        xs = [torch.randn(4, c, 17, 14, requires_grad=True) for c in (3, 1, 2)]
        keep = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 1, 0]], dtype=torch.bool)

        def loss():
            return torch.nn.functional.cross_entropy(network(xs, keep), torch.arange(4))

        loss().backward()
        for name, values in [*network.named_parameters(), ("input 0", xs[0]), ("input 1", xs[1])]:
            at, step = torch.randint(values.numel(), ()), 1e-6
            flat, gradient = values.data.view(-1), 0 if values.grad is None else values.grad.view(-1)[at]
            flat[at] += step
            above = loss().item()
            flat[at] -= 2 * step
            below = loss().item()
            flat[at] += step
            self.assertAlmostEqual((above - below) / (2 * step), float(gradient), delta=1e-8, msg=name)

    def test_jax_trains_a_population_or_says_that_it_is_not_there(self):
        result = run("population_jax.py")
        if result.returncode == 3:
            self.assertIn("JAX", json.loads(result.stderr)["problem"])
            self.assertEqual(result.stdout, "")
        else:
            self.expect_cases(result, ["JAX, vmap + jit", "JAX, lax.map + jit"])


if __name__ == "__main__":
    unittest.main(argv=["peers_test.py"])
