"""Our own first step, as `espalier bench` wrote it: what peers begin with, and what they have to arrive at.

Needs numpy alone, since JAX reads it too, and a machine that only times may have no package for safetensors.
"""

import json
import sys

import numpy

TYPES = {"U8": numpy.uint8, "U16": numpy.uint16, "F32": numpy.float32, "I64": numpy.int64}
FIRST, LAST = "host.block0.conv.weight", "host.classifier.weight"


def read(path):
    """The tensors of a safetensors file of these types, by name."""
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        # A copy: the file's bytes can be neither written to nor, in general, aligned.
        tensors[name] = numpy.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
    return tensors


class FirstStep:
    def __init__(self, path):
        self.tensors = read(path)
        self.images, self.labels, self.losses = (self.tensors[name] for name in ("images", "labels", "losses"))

    def lane(self, lane):
        """Every value of one network before the step, by its name in it."""
        prefix = f"{lane}."
        return {name[len(prefix):]: value for name, value in self.tensors.items()
                if name.startswith(prefix) and not name.startswith(prefix + "after.")}

    def compare(self, what, losses, first, last, is_narrow, is_gpu):
        """Ends the script where losses [L], or how the first and last weights [L,...] of all lanes changed, are not ours.
        Returns how far they are off, for the report."""
        # bf16 keeps 8 bits and TF32, which convolutions use on a GPU, 11; gradients are sums of either sign, and lose more.
        # In fp32 two pixels of a pool may be equal but for the last bit, and the gradient go to either: a thousandth of the whole.
        loss_limit, change_limit = (0.02, 0.25) if is_narrow else (0.005, 0.05) if is_gpu else (1e-4, 0.02)
        far_losses = float(numpy.max(numpy.abs(losses - self.losses) / numpy.abs(self.losses)))
        far = []
        for name, got in ((FIRST, first), (LAST, last)):
            for lane in range(len(self.losses)):
                before = self.tensors[f"{lane}.{name}"]
                want = self.tensors[f"{lane}.after.{name}"] - before
                far.append(float(numpy.linalg.norm(got[lane] - before - want) / numpy.linalg.norm(want)))
        if not (far_losses <= loss_limit and max(far) <= change_limit):  # false for NaN too
            sys.exit(f"{what}: losses are {far_losses:.1e} off ours, changes of the first and last weights {max(far):.1e}: "
                     f"want at most {loss_limit:g} and {change_limit:g}; one of us is wrong")
        return f"our first step: losses within {far_losses:.0e}, changes of the first and last weights within {max(far):.0e}"
