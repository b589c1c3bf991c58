"""Grown networks outside of training: what export writes is a plain PyTorch module that computes what predict does."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import load_file

ESPALIER = sys.argv[1]
TINY = ["--synthetic-train", "400", "--synthetic-test", "60", "--synthetic-size", "16x16"]
TRAIN = ["--device", "cpu", "--batch", "32", "--crop-pad", "1", "--controller", "random", "--learning-rate", "0.1", "--clip", "1"]


def run(*arguments, code=0):
    result = subprocess.run([ESPALIER, *map(str, arguments)], capture_output=True, text=True,
                            env=dict(os.environ, OMP_NUM_THREADS="1"))
    assert result.returncode == code, f"{arguments}: {result.returncode}\n{result.stdout}{result.stderr}"
    return result


def module_at(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def described(path):
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["network"])


class GrownNetworksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.temporary.name)
        cls.data = cls.folder / "shapes.safetensors"
        run("data", "convert", "synthetic:shapes10", cls.data, *TINY)
        cls.run_dir = cls.folder / "run"
        cls.source = ["--data", f"safetensors:{cls.data}"]
        # Seeds are blended in early, so that several kinds of them take part at the end.
        run("train", "population", *cls.source, *TRAIN, "--gate-training-steps", 0, "--embargo", 1, "--seed", 2, "--lanes", 6,
            "--epochs", 14, "--run-dir", cls.run_dir)
        run("export", cls.run_dir, cls.folder / "all", "--lane", "all")

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def predicted(self, network, *flags):
        out = self.folder / "predicted.safetensors"
        run("predict", network, "--device", "cpu", *flags, "--format", "safetensors", "--out", out, "--force")
        return load_file(out)

    def test_every_blueprint_and_operator_computes_in_pytorch_what_it_does_here(self):
        folder = self.folder / "each"
        folder.mkdir()
        result = subprocess.run([os.environ["ESPALIER_GROW_TESTS"], "--gtest_filter=NetworkPython.WritesEvery*"],
                                env=dict(os.environ, ESPALIER_NETWORKS_OUT=str(folder)), capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout)
        kinds = set()
        for python in sorted(folder.glob("*.py")):
            model = module_at(python).load()
            expected = load_file(python.with_suffix(".expected"))
            with torch.no_grad():
                logits = model(expected["images"])
            torch.testing.assert_close(logits, expected["logits"], rtol=1e-5, atol=1e-5)
            kinds |= {(seed["blueprint"], seed["operator"]) for seed in described(python.with_suffix(".safetensors"))["seeds"]}
        self.assertEqual(len(kinds), 8 * 3, kinds)

    def test_exported_lanes_compute_what_predict_says(self):
        tensors = load_file(self.data)
        pixels = tensors[next(name for name in tensors if name.startswith("test") and tensors[name].dim() == 4)]
        pixels = pixels.permute(0, 3, 1, 2)
        pairs = sorted((self.folder / "all").glob("*.py"))
        self.assertEqual([pair.stem for pair in pairs], [f"lane{i}" for i in range(6)])
        kinds = set()
        for lane, python in enumerate(pairs):
            module = module_at(python)
            with torch.no_grad():
                logits = module.load()(module.normalise(pixels))
            network = python.with_suffix(".safetensors")
            for where in [[network], [self.run_dir, "--lane", lane]]:
                predicted = self.predicted(*where, *self.source)
                torch.testing.assert_close(logits, predicted["logits"], rtol=1e-5, atol=1e-5)
                torch.testing.assert_close(logits.softmax(1), predicted["probabilities"], rtol=1e-5, atol=1e-5)
            metadata = described(network)
            self.assertEqual(metadata["origin"]["lane"], lane)
            self.assertEqual(metadata["origin"]["epoch"], 14)
            accuracy = (predicted["classes"] == predicted["labels"]).double().mean().item()
            self.assertAlmostEqual(metadata["origin"]["test_accuracy"], accuracy, places=6)
            self.assertIn("commit", metadata["origin"])
            self.assertEqual(metadata["classes"], module.CLASSES)
            kinds |= {seed["blueprint"] for seed in metadata["seeds"]}
        self.assertGreater(len(kinds), 2, kinds)  # else this showed bare hosts alone

    def grown_pairs(self, least):
        """Exported lanes until so many blueprints were seen: (path of the Python file, images)."""
        seen, pairs = set(), []
        tensors = load_file(self.data)
        pixels = tensors[next(name for name in tensors if name.startswith("test") and tensors[name].dim() == 4)].permute(0, 3, 1, 2)
        for python in sorted((self.folder / "all").glob("*.py")):
            kinds = {seed["blueprint"] for seed in described(python.with_suffix(".safetensors"))["seeds"]}
            if kinds - seen:
                pairs.append((python, pixels))
                seen |= kinds
        self.assertGreaterEqual(len(seen), least, seen)
        return pairs

    def test_torch_export_computes_what_the_module_does(self):
        for python, pixels in self.grown_pairs(least=3):
            module = module_at(python)
            model, images = module.load().eval(), module.normalise(pixels[:4])
            traced = torch.export.export(model, (images,)).module()
            other = module.normalise(pixels[4:8])
            with torch.no_grad():
                for x in (images, other):
                    torch.testing.assert_close(traced(x), model(x), rtol=1e-6, atol=1e-6)
            self.assertFalse(torch.equal(model(images), model(other)))

    def test_onnx_computes_what_the_module_does(self):
        missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
        if missing:
            self.skipTest(f"no {' and no '.join(missing)} (pip install onnx onnxscript): ONNX is not written")
        from onnx.reference import ReferenceEvaluator

        for python, pixels in self.grown_pairs(least=3):
            module = module_at(python)
            model, images = module.load().eval(), module.normalise(pixels[:4])
            out = self.folder / f"{python.stem}.onnx"
            torch.onnx.export(model, (images,), str(out))
            session = ReferenceEvaluator(str(out))
            [logits] = session.run(None, {session.input_names[0]: images.numpy()})
            torch.testing.assert_close(torch.from_numpy(logits), model(images).detach(), rtol=1e-4, atol=1e-4)

    def test_a_network_that_evaluate_kept_predicts_with_the_accuracy_it_names(self):
        kept = self.folder / "kept"
        run("evaluate", *self.source, "--devices", "cpu", "--batch", 32, "--crop-pad", 1, "--clip", 1, "--learning-rate", 0.1, "--gate-training-steps", 0,
            "--embargo", 1, "--controllers", "none,random", "--lanes", 4, "--episodes", 2, "--episode-length", 14, "--seed", 2, "--keep", kept, "--run-dir", self.folder / "compared")
        networks = sorted(kept.glob("*.safetensors"))
        self.assertEqual(len(networks), 4)
        told = set()
        for network in networks:
            predicted = self.predicted(network, *self.source)
            accuracy = (predicted["classes"] == predicted["labels"]).double().mean().item()
            self.assertAlmostEqual(described(network)["origin"]["test_accuracy"], accuracy, places=6, msg=network.name)
            told.add(round(accuracy, 6))
        self.assertGreater(len(told), 1, "all alike: this would show little")
        self.assertTrue(any(described(network)["seeds"] for network in networks), "nothing grew: this would show little")

    def test_an_ensemble_tells_its_accuracy(self):
        result = run("predict", self.run_dir, "--device", "cpu", "--ensemble", 3, *self.source)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        hits = sum(line["class"] == line["true_class"] for line in lines) / len(lines)
        self.assertIn(f"accuracy {100 * hits:.2f} %", result.stderr)
        together = self.predicted(self.run_dir, "--ensemble", 3, *self.source)
        self.assertAlmostEqual((together["classes"] == together["labels"]).double().mean().item(), hits, places=9)
        self.assertTrue(torch.equal(together["probabilities"].argmax(1), together["classes"]))
        self.assertGreater(hits, 0.2)  # ten classes: the best three learned something

    def test_an_ensemble_is_the_mean_of_the_best(self):
        lanes = sorted(range(6), key=lambda lane: -described(self.folder / "all" / f"lane{lane}.safetensors")["origin"]["validation_accuracy"])
        each = [self.predicted(self.run_dir, "--lane", lane, *self.source)["probabilities"] for lane in lanes[:3]]
        together = self.predicted(self.run_dir, "--ensemble", 3, *self.source)
        torch.testing.assert_close(together["probabilities"], torch.stack(each).mean(0), rtol=1e-5, atol=1e-6)
        self.assertNotIn("logits", together)
        best = self.predicted(self.run_dir, *self.source)
        torch.testing.assert_close(best["probabilities"], each[0], rtol=1e-5, atol=1e-6)

    def test_lines_of_json_have_labels_and_probabilities(self):
        result = run("predict", self.run_dir, "--device", "cpu", *self.source)
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual(len(lines), 60)
        self.assertEqual([line["sample"] for line in lines], list(range(60)))
        for line in lines:
            self.assertAlmostEqual(sum(line["probabilities"]), 1, places=5)
            self.assertEqual(max(line["probabilities"]), line["probability"])
        hits = sum(line["class"] == line["true_class"] for line in lines) / 60
        self.assertIn(f"accuracy {100 * hits:.2f} %", result.stderr)

    def test_images_without_labels_are_labelled(self):
        from_file = self.predicted(self.run_dir, *self.source)
        tensors = load_file(self.data)
        pixels = tensors[next(name for name in tensors if name.startswith("test") and tensors[name].dim() == 4)]
        photos = self.folder / "photos"
        photos.mkdir()
        for i in range(5):
            write_png(photos / f"{i}.png", pixels[i])
        result = run("predict", self.run_dir, "--device", "cpu", "--data", f"folder:{photos}")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        self.assertEqual([pathlib.Path(line["file"]).name for line in lines], [f"{i}.png" for i in range(5)])
        self.assertNotIn("true_class", lines[0])
        self.assertNotIn("accuracy", result.stderr)
        torch.testing.assert_close(torch.tensor([line["probabilities"] for line in lines]),
                                   from_file["probabilities"][:5], rtol=1e-5, atol=1e-5)
        for i in range(5):
            write_png(photos / f"{i}.png", pixels[i][:8])
        refused = run("predict", self.run_dir, "--device", "cpu", "--data", f"folder:{photos}", code=2)
        self.assertIn("3 x 8 x 16", refused.stderr)
        self.assertIn("; give --resize 16x16", refused.stderr)
        for rows, remedy in [(16, "; give --channels 3\n"), (8, "; give --channels 3 --resize 16x16\n")]:
            for i in range(5):
                write_png(photos / f"{i}.png", pixels[i][:rows, :, :1])
            refused = run("predict", self.run_dir, "--device", "cpu", "--data", f"folder:{photos}", code=2)
            self.assertIn(f"1 x {rows} x 16", refused.stderr)
            self.assertIn(remedy, refused.stderr)
        run("predict", self.run_dir, "--device", "cpu", "--data", f"folder:{photos}", "--channels", 3, "--resize", "16x16")

    def test_a_plan_knows_the_seeds_that_a_job_begins_with(self):
        plan = ["plan", "population", *self.source, "--devices", "cuda:15", "--batch", 32, "--lanes", 6]
        seeds = "seeds of every blueprint and slot"
        self.assertNotIn(seeds, run(*plan).stdout)
        self.assertIn(seeds, run(*plan, "--from", self.run_dir).stdout)

    def test_training_goes_on_from_what_was_exported(self):
        network = self.folder / "all" / "lane2.safetensors"
        for index, (start, want) in enumerate([(self.run_dir, range(6)), (network, [2] * 3)]):
            run_dir = self.folder / f"more{index}"
            run("train", "population", *self.source, *TRAIN, "--controller", "none", "--learning-rate", 0, "--weight-decay", 0, "--momentum", 0,
                "--from", start, "--lanes", len(want), "--epochs", 1, "--run-dir", run_dir)
            for lane, origin in enumerate(want):
                seeds = described(self.folder / "all" / f"lane{origin}.safetensors")["seeds"]
                out = self.folder / f"more{index}_{lane}"
                run("export", run_dir, out, "--lane", lane)
                grown = described(f"{out}.safetensors")["seeds"]
                fossils = [(seed["slot"], seed["blueprint"]) for seed in seeds if seed["stage"] == "FOSSILIZED"]
                self.assertEqual(fossils, [(s["slot"], s["blueprint"]) for s in grown if s["stage"] == "FOSSILIZED"])
                old, new = load_file(self.folder / "all" / f"lane{origin}.safetensors"), load_file(f"{out}.safetensors")
                kept = {"classifier", *(f"block{i}" for i in range(3)), *(slot for slot, _ in fossils)}
                for name in old:  # rate 0: what was learned is as it was, only running statistics move
                    if "running" not in name and name.split(".")[0] in kept:
                        self.assertTrue(torch.equal(old[name], new[name]), name)

    def test_mistakes_are_refused_in_one_sentence(self):
        out, empty = self.folder / "refused", self.folder / "empty"
        empty.mkdir()
        def refused(*arguments, code=2):
            text = run(*arguments, code=code).stderr.strip()
            lines = [line for line in text.splitlines() if line.startswith("espalier: ")]  # others tell of progress
            self.assertEqual(len(lines), 1, text)
            return lines[0]
        self.assertIn("no such lane: want 0 to 5", refused("export", self.run_dir, out, "--lane", 6))
        self.assertIn("is not there", refused("export", self.folder / "nowhere", out))
        self.assertIn("exists; give --force", refused("export", self.run_dir, self.folder / "all" / "lane0"))
        self.assertIn("exists; give --force", refused("export", self.run_dir, self.folder / "all", "--lane", "all"))
        self.assertIn("name that Python can import", refused("export", self.run_dir, self.folder / "7-lanes"))
        self.assertIn("neither a run nor an exported network", refused("export", empty, out))
        self.assertIn("at most", refused("predict", self.run_dir, "--ensemble", 7, *self.source))
        for lane in (0, "all"):  # not even where the run is not there
            self.assertIn(f"--lane {lane} --ensemble 2: want one of the two",
                          refused("predict", self.folder / "nowhere", "--lane", lane, "--ensemble", 2, *self.source))
        small = self.folder / "small.safetensors"  # a synthetic source would tell of its drawing first
        run("data", "convert", "synthetic:shapes10", small, *TINY, "--synthetic-size", "12x12")
        self.assertIn("3 x 12 x 12", refused("predict", self.run_dir, "--data", f"safetensors:{small}"))
        damaged = self.folder / "damaged.safetensors"
        whole = (self.folder / "all" / "lane0.safetensors").read_bytes()
        damaged.write_bytes(whole[:len(whole) // 2])
        self.assertIn("damaged.safetensors", refused("predict", damaged, *self.source, code=1))
        damaged.write_bytes(whole.replace(b'\\"mean\\"', b'\\"moan\\"'))
        self.assertIn("'mean'", refused("predict", damaged, *self.source, code=1))
        self.assertIn("no network that", refused("predict", self.data, *self.source, code=1))
        linet = self.folder / "linet"
        linet.mkdir()
        (linet / "environment.json").write_text('{"job": "linet"}')
        self.assertIn("a run of train linet", refused("export", linet, out))
        self.assertFalse(out.with_suffix(".py").exists())
        train = ["train", "population", *self.source, *TRAIN, "--epochs", 1, "--run-dir", self.folder / "never"]
        self.assertIn("--host cifar_baseline", refused(*train, "--host", "cifar_wide", "--from", self.run_dir))
        self.assertIn("--lanes", refused(*train, "--lanes", 5, "--from", self.run_dir))


def write_png(path, pixels):
    """pixels: uint8 [H, W, 1 or 3]."""
    import struct
    import zlib

    height, width, channels = pixels.shape
    rows = b"".join(b"\0" + bytes(row.flatten().tolist()) for row in pixels)
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


if __name__ == "__main__":
    unittest.main(argv=["grown_networks_test.py"])
