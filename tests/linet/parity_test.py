"""Whole networks against plain PyTorch: bench/peers/linet_torch.py writes references, linet_tests compares with them."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PEER = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "peers" / "linet_torch.py"
SMALL = ["--width", "0.0625", "--batch", "4", "--classes", "6"]
CASES = {
    "resnet18_n1_train": ["--model", "li_resnet18", "--streams", "3", "--size", "33x38", "--mode", "train"],
    "resnet18_n2_eval": ["--model", "li_resnet18", "--streams", "3,1", "--size", "40x33", "--mode", "eval"],
    "resnet18_n3_train_blank": ["--model", "li_resnet18", "--streams", "3,1,1", "--size", "64x64", "--mode", "train",
                                "--blank"],
    "resnet50_n3_train": ["--model", "li_resnet50", "--streams", "3,1,1", "--size", "64x64", "--mode", "train"],
    "resnet50_n2_eval_blank": ["--model", "li_resnet50", "--streams", "3,1", "--size", "48x64", "--mode", "eval",
                               "--blank"],
}


class ParityTest(unittest.TestCase):
    def test_networks_equal_pytorch(self):
        environment = dict(os.environ, OMP_NUM_THREADS="1")
        with tempfile.TemporaryDirectory() as folder:
            for name, flags in CASES.items():
                for dtype in ["float64", "float32"]:
                    file = f"{folder}/{name}.{dtype}.safetensors"
                    subprocess.run([sys.executable, str(PEER), "--reference", file, "--dtype", dtype, *SMALL, *flags],
                                   check=True, env=environment)
            result = subprocess.run([os.environ["ESPALIER_LINET_TESTS"], "--gtest_filter=LinetReference.*"],
                                    env=dict(environment, ESPALIER_LINET_REFERENCES=folder), capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("[  PASSED  ] 1 test", result.stdout)


if __name__ == "__main__":
    unittest.main(argv=["parity_test.py"])
