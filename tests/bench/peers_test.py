"""Every peer of the benchmarks once, small and on the CPU: each checks itself, and prints what the harness reads."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PEERS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "peers"
sys.path.insert(0, str(PEERS))


def start(script, *arguments):
    return subprocess.run([sys.executable, str(PEERS / script), *arguments],
                          capture_output=True, text=True, timeout=300, env=dict(os.environ, OMP_NUM_THREADS="1"))


def run(script, *arguments):
    return start(script, "--smoke", "--device", "cpu", *arguments)


class PeersTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def expect_cases(self, result, names):
        self.assertEqual(result.returncode, 0, result.stderr)
        cases = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([case["name"] for case in cases], names)
        for case in cases:
            self.assertTrue(case["shapes"] and case["note"])
            self.assertGreaterEqual(case["median_us"], case["best_us"])
            self.assertGreater(case["best_us"], 0)
            self.assertGreater(case["host_us"], 0)
        return cases

    def test_torch_trains_a_population(self):
        self.expect_cases(run("population_torch.py", "--dtype", "fp32"),
                          ["PyTorch, a loop over networks", "PyTorch, fused modules", "PyTorch, fused modules + compile",
                           "PyTorch, vmap + compile"])

    def test_processes_share_networks_out_and_are_compared_before_they_are_timed(self):
        # Without MPS, which needs a GPU: the same processes, on the CPU.
        code = """if __name__ == "__main__":
            import json, torch
            from first_step import FirstStep
            from mps_processes import measure_processes, mps_server
            from population_torch import compare_shares, make_share, shares_of
            assert shares_of(5, 2) == [(0, 3), (3, 2)]
            path = sys.argv[1]
            shares = [(*share, 4, 4, torch.float32, "cpu", path) for share in shares_of(3, 2)]
            words, timing = measure_processes(make_share, shares, {}, samples=2,
                                              check=lambda outcomes: compare_shares(FirstStep(path), "processes", outcomes, False, False))
            print(words)
            print(json.dumps(timing))
            try:
                with mps_server():
                    pass
            except RuntimeError as error:
                print(error)"""
        script = pathlib.Path(self.folder, "processes.py")
        script.write_text("import sys\nsys.path.insert(0, %r)\n%s\n" % (str(PEERS), code))

        def run_it(path):
            return subprocess.run([sys.executable, str(script), path], capture_output=True, text=True, timeout=300,
                                  env=dict(os.environ, OMP_NUM_THREADS="1", PATH="/usr/bin:/bin"))

        result = run_it(self.population_step("right"))
        self.assertEqual(result.returncode, 0, result.stderr)
        words, timing, reason = result.stdout.splitlines()
        self.assertIn("our first step: losses within", words)
        self.assertGreater(json.loads(timing)["best_us"], 0)
        self.assertIn("mps-control", reason.lower().replace(" ", "-"))
        # The last network, which the second process has, comes to another loss.
        result = run_it(self.population_step("wrong", wrong_losses=[0, 0, 0.1]))
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("processes: losses are", result.stderr)

    def population_step(self, name, wrong_losses=None):
        """A first step of three networks of four images, as `espalier bench` would write it, made by the loop."""
        import torch
        import population_torch
        networks = population_torch.make_networks(3, 4, torch.device("cpu"))
        names = [(network, {f"host.block{i}.{part}": getattr(network[4 * i + layer], value) for i in range(3) for part, layer, value in
                            (("conv.weight", 0, "weight"), ("norm.weight", 1, "weight"), ("norm.bias", 1, "bias"))}
                  | {"host.classifier.weight": network[-1].weight, "host.classifier.bias": network[-1].bias}) for network in networks]
        x, y = torch.randn(3, 4, 3, 32, 32), torch.randint(0, 10, (3, 4))
        step = population_torch.make_loop(networks, list(x), list(y), torch.float32, torch.device("cpu"), use_streams=False)
        return self.write_step(name, [values for _, values in names], x, y, step, wrong_losses)

    def growing_step(self, name, lanes, seeds, wrong_losses=None):
        """The same of networks that have grown, as the peer itself has them, one after the other and without clipping."""
        import torch
        import torch.nn.functional as F
        import growing_torch
        torch.manual_seed(5)
        networks = [growing_torch.Network(each) for each in growing_torch.seeds_of(seeds, lanes)]
        names = []
        for network in networks:
            values = {"host.classifier.weight": network.head.weight, "host.classifier.bias": network.head.bias}
            for i, block in enumerate(network.blocks):
                values |= {f"host.block{i}.conv.weight": block[0].weight, f"host.block{i}.norm.weight": block[1].weight,
                           f"host.block{i}.norm.bias": block[1].bias}
            for key, slot in network.slots.items():
                values |= {f"{key}.seed.{i:02}": value for i, value in enumerate(slot.seed.values())}
                if slot.operator == 2:
                    values |= {f"{key}.gate.{i:02}": value for i, value in enumerate(slot.gate.parameters())}
            with torch.no_grad():
                for value in values.values():
                    value.add_(0.2 * (torch.rand_like(value) - 0.5))  # a seed that began with zeros adds something too
            names.append(values)
        x, y = torch.randn(lanes, 4, 3, 32, 32), torch.randint(0, 10, (lanes, 4))

        def step():
            losses = []
            for network, images, labels in zip(networks, x, y):
                optimizer = torch.optim.SGD(network.parameters(), growing_torch.LR, growing_torch.MOMENTUM,
                                            weight_decay=growing_torch.WEIGHT_DECAY, nesterov=True)
                losses.append(F.cross_entropy(network(images), labels))
                losses[-1].backward()
                optimizer.step()
            return losses

        return self.write_step(name, names, x, y, step, wrong_losses)

    def write_step(self, name, networks, x, y, step, wrong_losses):
        """networks: of each lane its values by name."""
        import torch
        from safetensors.torch import save_file
        tensors = {f"{lane}.{key}": value.detach().clone() for lane, values in enumerate(networks) for key, value in values.items()}
        losses = torch.stack(step()).detach()
        tensors |= {"images": x, "labels": y, "losses": losses + torch.tensor(wrong_losses) if wrong_losses else losses}
        tensors |= {f"{lane}.after.{key}": values[key].detach().clone() for lane, values in enumerate(networks)
                    for key in ("host.block0.conv.weight", "host.classifier.weight")}
        path = os.path.join(self.folder, name)
        save_file({key: value.contiguous() for key, value in tensors.items()}, path)
        return path

    def grow(self, lanes, seeds, step):
        return run("growing_torch.py", "--dtype", "fp32", "--lanes", str(lanes), "--batch", "4", "--seeds", str(seeds), "--first-step", step)

    def test_torch_trains_what_has_grown_and_vmaps_networks_that_are_alike(self):
        import growing_torch
        # Three seeds in four networks: two are bare, and alike.
        self.assertEqual(sorted(map(sorted, growing_torch.groups_alike(3, 4))), [[0], [1], [2, 3]])
        result = self.grow(4, 3, self.growing_step("three", 4, 3))
        cases = self.expect_cases(result, ["PyTorch, a loop over networks, 3 seeds: a step", "PyTorch, vmap over networks that are alike: a step"])
        self.assertIn("2 networks in 1 group, 2 in the loop", cases[1]["note"])
        for case in cases:
            self.assertIn("our first step: losses within", case["checked"])
        # Each way is compared: the last network, which vmap trains, is off.
        result = self.grow(4, 3, self.growing_step("wrong", 4, 3, wrong_losses=[0, 0, 0, 0.1]))
        self.assertEqual(result.returncode, 1)
        self.assertIn("losses are", result.stderr)

    def test_vmap_trains_networks_with_the_same_seeds_as_each_alone(self):
        # Where seeds stand, two networks hardly ever have the same: here all have those of the third.
        import torch
        import torch.nn.functional as F
        import growing_torch
        for kind in growing_torch.BLUEPRINTS[1:]:
            for number in range(3):
                torch.manual_seed(number)
                seeds = [(growing_torch.SLOTS[0], kind, number), (growing_torch.SLOTS[4], kind, number)]
                networks = [growing_torch.Network(seeds) for _ in range(2)]
                x, y = torch.randn(2, 4, 3, 32, 32), torch.randint(0, 10, (2, 4))
                group = growing_torch.Group([0, 1], networks, x, y)
                for clip in (0.05, None):
                    losses = group.train(clip, is_narrow=False)
                    for lane, network in enumerate(networks):
                        optimizer = getattr(network, "optimizer", None) or torch.optim.SGD(
                            network.parameters(), growing_torch.LR, growing_torch.MOMENTUM, weight_decay=growing_torch.WEIGHT_DECAY, nesterov=True)
                        object.__setattr__(network, "optimizer", optimizer)
                        optimizer.zero_grad()
                        loss = F.cross_entropy(network(x[lane]), y[lane])
                        loss.backward()
                        if clip:
                            torch.nn.utils.clip_grad_norm_(network.parameters(), clip)
                        optimizer.step()
                        self.assertAlmostEqual(float(losses[lane]), float(loss.detach()), delta=1e-4, msg=(kind, number))
                        for name, want in [*network.named_parameters(), *network.named_buffers()]:
                            got = (group.parameters | group.buffers)[name][lane]
                            self.assertLessEqual(float((got - want).detach().double().norm()), 1e-3 * float(want.detach().double().norm()) + 1e-6,
                                                 (kind, number, name))

    def test_torch_says_where_no_two_networks_are_alike(self):
        result = self.grow(2, 3, self.growing_step("unlike", 2, 3))
        self.assertEqual(result.returncode, 0, result.stderr)
        case, reason = map(json.loads, result.stdout.splitlines())
        self.assertEqual(case["name"], "PyTorch, a loop over networks, 3 seeds: a step")
        self.assertEqual(reason, {"problem": "no two networks are alike: vmap would be the loop"})

    def test_torch_gathers_our_samples_and_has_to_make_our_first_batch(self):
        import torch
        from safetensors.torch import save_file
        torch.manual_seed(3)
        values, labels = torch.randint(0, 256, (20, 3, 4, 4), dtype=torch.uint8), torch.randint(0, 10, (20,))
        affine, order = torch.tensor([[0.01, 0.02, 0.03], [-1.0, -2, -3]]), torch.tensor([[3, 1, 4], [15, 9, 2]])
        images = values[order].float() * affine[0][:, None, None] + affine[1][:, None, None]
        names = ["PyTorch, one index gather per environment", "PyTorch, a DataLoader per environment"]
        path = os.path.join(self.folder, "batch")
        for wrong in (None, "batch.images", "batch.labels"):
            tensors = {"values": values, "affine": affine, "labels": labels, "order": order, "batch.images": images, "batch.labels": labels[order]}
            if wrong:
                tensors[wrong] = tensors[wrong].flip(1).contiguous()
            save_file(tensors, path)
            result = run("gather_torch.py", "--envs", "2", "--batch", "3", "--first-batch", path)
            if wrong:
                self.assertEqual((result.returncode, result.stdout), (1, ""), wrong)
                self.assertIn("one of us is wrong", result.stderr)
            else:
                for case in self.expect_cases(result, names):
                    self.assertIn("our first batch", case["checked"])

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
