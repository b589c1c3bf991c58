"""What a PyTorch user writes to feed several environments from one dataset: the peers of `espalier bench gather`.

Two ways, both over fp32 tensors of CIFAR-10's sizes that already lie on the device, without augmentation: one
advanced-index gather per environment, and a DataLoader per environment. Prints one JSON line per case.
"""

import argparse

import torch
from torch.utils.data import DataLoader, TensorDataset

from torch_timing import measure, report


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    device = torch.device(args.device)
    count = 5000 if args.smoke else 50000
    images = torch.rand(count, 3, 32, 32).to(device).contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (count,)).to(device)
    total = args.envs * args.batch
    order = torch.randperm(count, device=device)
    place = 0

    def index_gather():
        nonlocal order, place
        if place + total > count:
            order, place = torch.randperm(count, device=device), 0
        chunks = order[place : place + total].tensor_split(args.envs)
        place += total
        return [(images[chunk], labels[chunk]) for chunk in chunks]

    loaders = [
        DataLoader(TensorDataset(images, labels), batch_size=args.batch, shuffle=True, drop_last=True)
        for _ in range(args.envs)
    ]
    streams = [iter(loader) for loader in loaders]

    def data_loader():
        for env, loader in enumerate(loaders):
            batch = next(streams[env], None)
            if batch is None:
                streams[env] = iter(loader)
                batch = next(streams[env])

    shapes = f"{args.envs} x {args.batch}"
    plan = (1, 1, 1) if args.smoke else (10, 20, 10)
    report("PyTorch, one index gather per environment", shapes, "fp32, no augmentation", **measure(index_gather, device, *plan))
    plan = (1, 1, 1) if args.smoke else (2, 5, 1)
    report("PyTorch, a DataLoader an environment", shapes, "fp32, no augmentation", **measure(data_loader, device, *plan))


if __name__ == "__main__":
    main()
