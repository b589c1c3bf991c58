#!/usr/bin/env python3
"""Files read both ways: what espalier writes, the Python package reads, and the other way round.

usage: safetensors_python_test.py ESPALIER
ESPALIER is the program, whose `data convert SRC OUT` this calls. Needs the packages numpy and safetensors.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(0)


def convert(espalier, source, out, *options):
    subprocess.run([espalier, "data", "convert", source, str(out), *options], check=True, stdout=subprocess.DEVNULL)


def metadata_of(path):
    with safe_open(str(path), "np") as file:
        return file.metadata()


def main():
    espalier = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs, back = (Path(folder) / f"{name}.safetensors" for name in ("ours", "theirs", "back"))
        sizes = ["--synthetic-train", "18", "--synthetic-test", "9", "--synthetic-size", "8x12"]
        convert(espalier, "synthetic:rgbd", ours, *sizes)

        tensors, metadata = load_file(ours), metadata_of(ours)
        assert tensors["train.rgb"].shape == (18, 8, 12, 3) and tensors["train.rgb"].dtype == np.uint8
        assert tensors["test.depth"].shape == (9, 8, 12, 1) and tensors["test.depth"].dtype == np.uint16
        assert tensors["train.labels"].tolist() == [i % 9 for i in range(18)]
        assert json.loads(metadata["fields"]) == ["rgb", "depth", "orth"]
        assert len(json.loads(metadata["class_names"])) == 9
        for field, scale in (("rgb", 255), ("depth", 65535), ("orth", 255)):
            values = tensors[f"train.{field}"].astype(np.float64) / scale
            np.testing.assert_allclose(json.loads(metadata[f"mean.{field}"]), values.mean((0, 1, 2)), rtol=1e-12)
            np.testing.assert_allclose(json.loads(metadata[f"std.{field}"]), values.std((0, 1, 2)), rtol=1e-9)

        # The package lays tensors out in its own order; the statistics are left out, so they are computed.
        kept = {key: metadata[key] for key in ("fields", "class_names")}
        save_file(tensors, theirs, metadata=kept)
        convert(espalier, f"safetensors:{theirs}", back)
        assert back.read_bytes() == ours.read_bytes()
    print("ok")


if __name__ == "__main__":
    main()
