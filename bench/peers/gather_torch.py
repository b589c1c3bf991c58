"""What a PyTorch user writes to feed several environments from one dataset: the peers of `espalier bench gather`.

Two ways, both over fp32 tensors of CIFAR-10's sizes that already lie on the device, without augmentation: one
advanced-index gather per environment, and a DataLoader per environment. With --first-batch each way goes over our own
samples and has to make our first batch before it is timed. Prints one JSON line per case.
"""

import argparse
import sys

import numpy
import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset

import first_step
from torch_timing import measure, report


class FirstBatch:
    """Our own samples, which of them the first batch of every environment is made of, and that batch."""

    def __init__(self, path):
        self.tensors = first_step.read(path)
        self.order = torch.from_numpy(self.tensors["order"])  # [E,B]

    def data(self):
        """All samples as a user has them: normalised, fp32."""
        scale, shift = torch.from_numpy(self.tensors["affine"])[:, :, None, None]
        return torch.from_numpy(self.tensors["values"]).float().mul_(scale).add_(shift), torch.from_numpy(self.tensors["labels"])

    def compare(self, what, batches):
        """Ends the script where batches, [E] of images and labels, are not ours. Returns how far they are off, for the report."""
        images, labels = (numpy.stack([part.cpu().numpy() for part in parts]) for parts in zip(*batches))
        want = self.tensors["batch.images"]
        far = float(numpy.max(numpy.abs(images - want)))
        # Normalising rounds once or twice, as the machine has it.
        limit = 2e-6 * max(1, float(numpy.max(numpy.abs(want))))
        if not far <= limit or not (labels == self.tensors["batch.labels"]).all():
            sys.exit(f"{what}: the images of the first batch are {far:.1e} off ours, want at most {limit:.1e}, and the same labels: one of us is wrong")
        return f"our first batch without crops and flips: within {far:.0e}"


class Shuffled(Sampler):
    """All samples in a new order every time, as shuffle=True has it; those of `first` come before them the first time."""

    def __init__(self, count, first):
        self.count, self.first = count, first

    def __len__(self):
        return self.count

    def __iter__(self):
        first, self.first = self.first, []
        yield from [*first, *torch.randperm(self.count).tolist()]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--envs", type=int, default=8)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--first-batch", metavar="FILE", help="our samples and the first batch of them: begin with it")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    device = torch.device(args.device)
    ours = FirstBatch(args.first_batch) if args.first_batch else None
    if ours:
        images, labels = ours.data()
    else:
        count = 5000 if args.smoke else 50000
        images, labels = torch.rand(count, 3, 32, 32), torch.randint(0, 10, (count,))
    count = len(labels)
    images, labels = images.to(device).contiguous(memory_format=torch.channels_last), labels.to(device)
    total = args.envs * args.batch
    order = torch.randperm(count, device=device)
    if ours:
        order = torch.cat([ours.order.flatten().to(device), order])
    place = 0

    def index_gather():
        nonlocal order, place
        if place + total > len(order):
            order, place = torch.randperm(count, device=device), 0
        chunks = order[place : place + total].tensor_split(args.envs)
        place += total
        return [(images[chunk], labels[chunk]) for chunk in chunks]

    loaders = [
        DataLoader(TensorDataset(images, labels), batch_size=args.batch, drop_last=True,
                   sampler=Shuffled(count, ours.order[env].tolist() if ours else []))
        for env in range(args.envs)
    ]
    streams = [iter(loader) for loader in loaders]

    def data_loader():
        batches = []
        for env, loader in enumerate(loaders):
            batch = next(streams[env], None)
            if batch is None:
                streams[env] = iter(loader)
                batch = next(streams[env])
            batches.append(batch)
        return batches

    shapes = f"{args.envs} x {args.batch}"
    for name, body, plan in (("PyTorch, one index gather per environment", index_gather, (10, 20, 10)),
                             ("PyTorch, a DataLoader per environment", data_loader, (2, 5, 1))):
        words = ours.compare(name, body()) if ours else ""
        report(name, shapes, "fp32, no augmentation", checked=words, **measure(body, device, *((1, 1, 1) if args.smoke else plan)))


if __name__ == "__main__":
    main()
