"""What accuracy separately trained PyTorch networks reach: the peer of `espalier train population` without a controller.

Networks of three blocks (3x3 convolution without bias, batch norm, ReLU, 2x2 max pool), global average pool and a linear
layer, one after the other, each from its own seed: SGD with Nesterov momentum, a learning rate that rises over the first
fifth of the steps and falls to 0, crops after padding with black and mirror images, bf16 autocast, channels-last. Reads
what `espalier data convert` writes. Prints one JSON line.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4


def network(base, classes):
    layers, channels = [], 3
    for i in range(3):
        wider = base * 2**i
        layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def load(path, device):
    with safe_open(path, "pt") as file:
        meta = file.metadata()
        field = json.loads(meta["fields"])[0]
        data = {split: (file.get_tensor(f"{split}.{field}").to(device), file.get_tensor(f"{split}.labels").to(device)) for split in ("train", "test")}
        mean = torch.tensor(json.loads(meta[f"mean.{field}"]), device=device) * 255
        std = torch.tensor(json.loads(meta[f"std.{field}"]), device=device) * 255
        return data, mean, std, len(json.loads(meta["class_names"]))


def crops(images, pad, generator):
    """One crop per sample, maybe mirrored; images: [B,H,W,C] uint8."""
    batch, height, width, _ = images.shape
    padded = F.pad(images, (0, 0, pad, pad, pad, pad))
    top, left = (torch.randint(0, 2 * pad + 1, (batch, 1, 1), device=images.device, generator=generator) for _ in range(2))
    rows = top + torch.arange(height, device=images.device).view(1, -1, 1)
    columns = torch.arange(width, device=images.device).view(1, 1, -1).expand(batch, 1, -1)
    mirrored = torch.rand(batch, 1, 1, device=images.device, generator=generator) < 0.5
    columns = left + torch.where(mirrored, width - 1 - columns, columns)
    return padded[torch.arange(batch, device=images.device).view(-1, 1, 1), rows, columns]


def train(seed, data, mean, std, classes, args):
    torch.manual_seed(seed)
    generator = torch.Generator(args.device).manual_seed(seed)
    model = network(args.base, classes).to(args.device, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=MOMENTUM, nesterov=True, weight_decay=WEIGHT_DECAY)
    images, labels = data["train"]
    kept = torch.randperm(len(images), device=args.device, generator=generator)[: args.samples]
    steps_an_epoch = len(kept) // args.batch
    steps = steps_an_epoch * args.epochs

    def ready(batch):
        return ((batch.float() - mean) / std).permute(0, 3, 1, 2)

    step = 0
    for _ in range(args.epochs):
        order = kept[torch.randperm(len(kept), device=args.device, generator=generator)]
        for i in range(steps_an_epoch):
            at, peak = step + 0.5, 0.2 * steps
            optimiser.param_groups[0]["lr"] = args.lr * (at / peak if at < peak else (steps - at) / (steps - peak))
            chosen = order[i * args.batch : (i + 1) * args.batch]
            with torch.autocast(args.device.split(":")[0], torch.bfloat16):
                loss = F.cross_entropy(model(ready(crops(images[chosen], 4, generator))), labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            step += 1
    model.eval()
    images, labels = data["test"]
    with torch.no_grad(), torch.autocast(args.device.split(":")[0], torch.bfloat16):
        right = sum((model(ready(images[i : i + 1000])).argmax(1) == labels[i : i + 1000]).sum() for i in range(0, len(images), 1000))
    return right.item() / len(images)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a safetensors file that `espalier data convert` wrote")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--networks", type=int, default=8)
    parser.add_argument("--base", type=int, default=32)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=0.4)
    parser.add_argument("--samples", type=int, default=45000, help="of the training split: the rest is set aside, as ours does")
    args = parser.parse_args()
    began = time.time()
    loaded = load(args.data, args.device)
    found = [train(seed, *loaded, args) for seed in range(args.networks)]
    spread = statistics.stdev(found) if len(found) > 1 else 0.0
    print(json.dumps({"accuracies": found, "mean": statistics.mean(found), "std": spread, "seconds": time.time() - began}))


if __name__ == "__main__":
    main()
