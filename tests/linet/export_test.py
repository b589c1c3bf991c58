"""A trained network in Python: what `espalier linet export` writes is a state_dict of the plain PyTorch module."""

import importlib.util
import pathlib
import subprocess
import sys
import tempfile
import unittest

import torch
from safetensors import safe_open
from safetensors.torch import load_file

PEERS = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "peers"
ESPALIER = sys.argv[1]


def peer():
    sys.path.insert(0, str(PEERS))
    spec = importlib.util.spec_from_file_location("linet_torch", PEERS / "linet_torch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
            state = load_file(out)
            with safe_open(out, "pt") as file:
                metadata = file.metadata()
        self.assertEqual(metadata["stream_names"], "rgb,depth,orth")
        numbers = {key: [int(each) for each in metadata[key].split(",")] for key in ["streams", "stages", "widths"]}
        network = peer().LINet(metadata["block"], numbers["stages"], numbers["widths"], numbers["streams"],
                               int(metadata["classes"]))
        network.load_state_dict(state)  # strict: nothing missing, nothing more
        network.eval()
        with torch.no_grad():
            logits = network([torch.rand(2, channels, 32, 32) for channels in numbers["streams"]])
        self.assertEqual(logits.shape, (2, 9))
        self.assertTrue(torch.isfinite(logits).all())
        self.assertEqual(int(state["bn1.integrated.num_batches_tracked"]), 3)


if __name__ == "__main__":
    unittest.main(argv=["export_test.py"])
