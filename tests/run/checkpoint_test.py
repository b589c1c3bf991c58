"""A checkpoint's tensors load in Python with the safetensors package alone, and are what the manifest says."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy
from safetensors.numpy import load_file

DATA = ["--synthetic-train", "60", "--synthetic-test", "20"]


def crc32c(data):
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def last_checkpoint(espalier, folder, *arguments):
    subprocess.run([espalier, "train", *arguments, *DATA, "--epochs", "1", "--run-dir", folder], check=True, capture_output=True)
    checkpoint = max((folder / "checkpoints").iterdir())
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    tensors = load_file(checkpoint / "state.safetensors")
    assert set(tensors) == set(manifest["tensor_crc32c"]), "the manifest names other tensors"
    for name, tensor in tensors.items():
        assert crc32c(numpy.ascontiguousarray(tensor).tobytes()) == manifest["tensor_crc32c"][name], name
    return tensors


def main():
    espalier = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        hosts = last_checkpoint(espalier, Path(folder) / "population", "population", "--devices", "cpu", "--lanes", "3", "--batch", "18",
                                "--synthetic-size", "8x8")
        weights = {name: tensor for name, tensor in hosts.items() if name.startswith("host.") and tensor.ndim == 5}
        assert weights, sorted(hosts)
        for name, weight in weights.items():
            assert weight.shape[0] == 3 and weight.dtype == numpy.float32, (name, weight.shape)
            assert numpy.isfinite(weight).all() and not (weight[0] == weight[1]).all(), name
        linet = last_checkpoint(espalier, Path(folder) / "linet", "linet", "--device", "cpu", "--batch", "18", "--width", "0.0625")
        assert any(name.startswith("network.layer1.0.conv1") for name in linet), sorted(linet)


if __name__ == "__main__":
    main()
