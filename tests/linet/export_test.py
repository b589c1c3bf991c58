"""A trained network in Python: what `espalier linet export` writes is a state_dict of the plain PyTorch module."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import save_file

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ESPALIER = sys.argv[1]
sys.path.insert(0, str(ROOT / "python"))
import espalier_linet  # noqa: E402


class ExportTest(unittest.TestCase):
    def test_pytorch_loads_what_was_exported(self):
        with tempfile.TemporaryDirectory() as folder:
            data, run, out = f"{folder}/rgbd.safetensors", f"{folder}/run", f"{folder}/linet.safetensors"
            subprocess.run([ESPALIER, "data", "convert", "synthetic:rgbd", data, "--synthetic-train", "64",
                            "--synthetic-test", "9"], check=True, capture_output=True)
            subprocess.run([ESPALIER, "train", "linet", "--device", "cpu", "--data", f"safetensors:{data}", "--batch", "16",
                            "--epochs", "1", "--width", "0.0625", "--run-dir", run],
                           check=True, capture_output=True)
            subprocess.run([ESPALIER, "linet", "export", run, out], check=True, capture_output=True)
            before = pathlib.Path(out).read_bytes()
            refused = subprocess.run([ESPALIER, "linet", "export", run, out], capture_output=True, text=True)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("--force", refused.stderr)
            self.assertEqual(pathlib.Path(out).read_bytes(), before)
            subprocess.run([ESPALIER, "linet", "export", run, out, "--force"], check=True, capture_output=True)
            network = espalier_linet.load(out)
            with safe_open(data, "pt") as file:
                facts = file.metadata()
                images = {name: file.get_tensor(f"test.{name}") for name in network.stream_names}
                labels = file.get_tensor("test.labels")
            with open(f"{run}/metrics.jsonl") as lines:
                result = json.loads(lines.readlines()[-1])
            documented = self.documented(folder)
        self.assertEqual(network.architecture, "li_resnet18")
        self.assertEqual(network.stream_names, ["rgb", "depth", "orth"])
        self.assertEqual(network.class_names, json.loads(facts["class_names"]))
        self.assertEqual(int(network.bn1.integrated.num_batches_tracked), 3)
        with torch.no_grad():
            logits = network(network.prepare(images))
        # The same answers as the program's, so mean, deviation and order of streams are right too.
        self.assertAlmostEqual(float(torch.nn.functional.cross_entropy(logits, labels)), result["test_loss"], places=3)
        self.assertAlmostEqual(float((logits.argmax(1) == labels).float().mean()), result["test_accuracy"], places=5)
        self.assertEqual(documented.returncode, 0, documented.stderr)
        self.assertEqual(len(eval(documented.stdout)), 2)

    def documented(self, folder):
        """The lines of docs/linet.md, as they stand there, where the file was written."""
        manual = (ROOT / "docs" / "linet.md").read_text()
        code = re.search(r"```python\n(.*?)```", manual, re.DOTALL)[1].replace('"python"', repr(str(ROOT / "python")))
        return subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)

    def test_a_file_of_another_kind_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            save_file({"x": torch.zeros(1)}, f"{folder}/x.safetensors")
            with self.assertRaisesRegex(ValueError, "x.safetensors: is no file that"):
                espalier_linet.load(f"{folder}/x.safetensors")


if __name__ == "__main__":
    unittest.main(argv=["export_test.py"])
