"""Espalier's gather from Python: one launch crops, flips, normalises and casts a batch for every lane.

    ESPALIER_OPS=build/release/libespalier_ops.so python examples/gather.py
"""

import os

import torch

torch.ops.load_library(os.environ.get("ESPALIER_OPS", "build/release/libespalier_ops.so"))
device = "cuda" if torch.cuda.is_available() else "cpu"

# A dataset that stays on the device: uint8, channels-last.
images = torch.randint(0, 256, (1000, 3, 32, 32), dtype=torch.uint8, device=device)
images = images.contiguous(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (1000,), device=device)
affine = torch.tensor([[1 / 64.0] * 3, [-2.0] * 3], device=device)  # scale, shift: a channel each

lanes, batch = 8, 64
out = torch.empty(lanes, batch, 32, 32, 3, device=device).permute(0, 1, 4, 2, 3)  # [L,B,C,H,W], channels-last
labels_out = torch.empty(lanes, batch, dtype=torch.int64, device=device)
mask = torch.empty(lanes, batch, dtype=torch.bool, device=device)

epoch, step = 0, 0
torch.ops.espalier.gather_into(
    [images], labels, [affine],
    torch.arange(lanes, device=device), torch.tensor([epoch, step]),  # which lanes, which batch
    "own", True, 42, batch, lanes,  # every lane its own shuffled order, from seed 42
    True, True, 4, 42,  # augment: flip, crop with 4 pixels of padding, from seed 42
    [out], [labels_out], mask,
)
print(f"{lanes} lanes of {batch} on {device}: mean {out.mean():.3f}, deviation {out.std():.3f}")
assert mask.all()
