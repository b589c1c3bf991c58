"""What a PyTorch user writes to train small networks of different structures: the peer of `espalier bench growing`.

One step (forward, backward, clipping by the gradient norm, SGD with Nesterov momentum and weight decay) of L networks of
`cifar_baseline` (three blocks of 8, 16 and 32 channels) in whose slots seeds stand, as torch.nn modules, on random images
of CIFAR-10's sizes that already lie on the device: one network after another; on a GPU each on a stream of its own too;
and networks whose seeds are alike through torch.func.vmap together, where there are any. Seeds stand where
bench/growing/growing_bench.cpp has them.
With --first-step each way begins with our own networks and images, and has to make our first step before it is timed.
Prints one JSON line per case.
"""

import argparse
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

from first_step import FirstStep
from torch_timing import measure, problem, report, wait

LR, MOMENTUM, WEIGHT_DECAY, CLIP = 0.1, 0.9, 5e-4, 1.0
CLASSES = 10
BASE = 8
BLUEPRINTS = ["noop", "norm", "attention", "depthwise", "bottleneck", "conv_small", "conv_light", "conv_heavy"]
# By action index: (row, column); row 0 comes before a block's pool, row 1 behind it.
SLOTS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def groups_of(channels):
    for groups in (32, 16, 8, 4, 2, 1):
        if channels % groups == 0 and channels // groups >= 16:
            return groups
    return next(groups for groups in (32, 16, 8, 4, 2, 1) if channels % groups == 0)


def conv(inside, outside, kernel=1, groups=1):
    return nn.Conv2d(inside, outside, kernel, padding=kernel // 2, bias=False, groups=groups)


class Seed(nn.Module):
    def __init__(self, kind, channels):
        super().__init__()
        self.kind = kind
        norm = lambda: nn.GroupNorm(groups_of(channels), channels)
        if kind == "norm":
            self.branch, self.mix = norm(), nn.Parameter(torch.zeros(()))
        elif kind == "attention":
            narrow = max(1, channels // 4)
            self.branch = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, narrow), nn.ReLU(),
                                        nn.Linear(narrow, channels), nn.Sigmoid())
        elif kind == "depthwise":
            self.branch = nn.Sequential(conv(channels, channels, 3, channels), conv(channels, channels), nn.ReLU(), norm())
        elif kind == "bottleneck":
            narrow = max(8, channels // 4)
            self.branch = nn.Sequential(conv(channels, narrow), conv(narrow, narrow, 3), conv(narrow, channels), norm())
        elif kind == "conv_small":
            self.branch = nn.Sequential(conv(channels, channels), nn.ReLU(), norm())
        elif kind == "conv_light":
            self.branch = nn.Sequential(conv(channels, channels, 3), nn.ReLU(), norm())
        else:
            self.branch = nn.Sequential(conv(channels, channels, 3), norm(), nn.ReLU(), conv(channels, channels, 3), nn.ReLU(), norm())

    def values(self):
        """The parameters in the order in which ours are written."""
        return [*self.branch.parameters(), *([self.mix] if self.kind == "norm" else [])]

    def forward(self, x):
        if self.kind == "norm" and x.device.type == "cpu" and not x.requires_grad:
            x = x + 0 * self.mix  # torch 2.11's group norm crashes there where a channels-last input wants no gradient
        y = self.branch(x)
        if self.kind == "norm":
            return x + torch.tanh(self.mix) * (y - x)
        if self.kind == "attention":
            return x * (2 * y)[:, :, None, None]
        return x + y


class Slot(nn.Module):
    """A seed and how it is felt: not at all yet, or by one of the operators."""

    def __init__(self, kind, channels, number):
        super().__init__()
        self.seed, self.is_training, self.operator = Seed(kind, channels), number % 3 == 2, number % 3
        if self.operator == 2:
            narrow = max(8, channels // 4)
            self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, narrow), nn.ReLU(),
                                      nn.Linear(narrow, 1), nn.Sigmoid())

    def forward(self, h):
        if self.is_training:
            s = self.seed(h.detach())
            return h + (s - s.detach())
        s = self.seed(h)
        if self.operator == 1:
            return h * (1 + torch.tanh(s - h))
        return s if self.operator == 0 else h + self.gate(h)[:, :, None, None] * (s - h)


class Network(nn.Module):
    def __init__(self, seeds):
        super().__init__()
        self.blocks, self.slots, channels = nn.ModuleList(), nn.ModuleDict(), 3
        for i in range(3):
            wider = BASE << i
            self.blocks.append(nn.Sequential(conv(channels, wider, 3), nn.BatchNorm2d(wider), nn.ReLU()))
            channels = wider
        for (row, column), kind, number in seeds:
            self.slots[f"r{row}c{column}"] = Slot(kind, BASE << column, number)
        self.head = nn.Linear(channels, CLASSES)

    def forward(self, x):
        for i, block in enumerate(self.blocks):
            x = block(x)
            for row in (0, 1):
                if row == 1:
                    x = F.max_pool2d(x, 2)
                if f"r{row}c{i}" in self.slots:
                    x = self.slots[f"r{row}c{i}"](x)
        return self.head(x.mean((2, 3)))


def load_first_step(networks, step):
    """Our values into each network; fails where one is left over, or has another shape."""
    with torch.no_grad():
        for lane, network in enumerate(networks):
            values = {name: torch.from_numpy(value) for name, value in step.lane(lane).items()}
            places = {}
            for i, block in enumerate(network.blocks):
                places |= {f"host.block{i}.conv.weight": block[0].weight, f"host.block{i}.norm.weight": block[1].weight,
                           f"host.block{i}.norm.bias": block[1].bias}
            places |= {"host.classifier.weight": network.head.weight, "host.classifier.bias": network.head.bias}
            for name, slot in network.slots.items():
                own = [key for key in values if key.startswith(f"{name}.") and ".gate." not in key]
                places |= dict(zip(own, slot.seed.values(), strict=True))
                if slot.operator == 2 and not slot.is_training:
                    gate = [key for key in values if key.startswith(f"{name}.") and ".gate." in key]
                    places |= dict(zip(gate, slot.gate.parameters(), strict=True))
            for name, parameter in places.items():
                parameter.copy_(values[name].view(parameter.shape))


def seeds_of(count, lanes):
    places = lanes * len(SLOTS)
    stride = max(1, places * 2 // 9)
    while math.gcd(stride, places) != 1:
        stride += 1
    seeds = [[] for _ in range(lanes)]
    for i in range(count):
        place = i * stride % places
        seeds[place // len(SLOTS)].append((SLOTS[place % len(SLOTS)], BLUEPRINTS[1 + i % (len(BLUEPRINTS) - 1)], i))
    return seeds


def groups_alike(count, lanes):
    """Lanes whose networks have seeds of the same kinds, felt in the same way, in the same slots: [groups] of lanes."""
    groups = {}
    for lane, seeds in enumerate(seeds_of(count, lanes)):
        groups.setdefault(tuple(sorted((slot, kind, number % 3) for slot, kind, number in seeds)), []).append(lane)
    return list(groups.values())


def clip_each(parameters, largest):
    """clip_grad_norm_() of every network by itself; parameters: [L,...] each."""
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norms = torch.stack([grad.flatten(1).norm(dim=1) if grad.dim() > 1 else grad.abs() for grad in grads]).norm(dim=0)  # [L]
    factors = (largest / (norms + 1e-6)).clamp(max=1)
    for grad in grads:
        grad.mul_(factors.view(-1, *[1] * (grad.dim() - 1)))


class Group:
    """Networks of equal structure as one through vmap, their parameters stacked."""

    def __init__(self, lanes, networks, x, y):
        """lanes: which ones they are; x, y: their images [L,B,3,32,32] and labels [L,B]."""
        self.lanes, self.x, self.y = lanes, x, y
        self.parameters, self.buffers = stack_module_state(networks)
        self.optimizer = torch.optim.SGD(list(self.parameters.values()), LR, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True,
                                         fused=x.device.type == "cuda")
        self.losses = vmap(lambda parameters, buffers, x, y: F.cross_entropy(functional_call(networks[0], (parameters, buffers), (x,)), y))

    def train(self, clip, is_narrow):
        """Returns the losses, [L]."""
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.x.device.type, torch.bfloat16, enabled=is_narrow):
            losses = self.losses(self.parameters, self.buffers, self.x, self.y)
        losses.sum().backward()  # networks share nothing: each has the gradient of its own loss
        if clip:
            clip_each(self.parameters.values(), clip)
        self.optimizer.step()
        return losses.detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lanes", type=int, default=32)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seeds", type=int, default=75)
    parser.add_argument("--dtype", default="bf16", choices=["fp32", "bf16"])
    parser.add_argument("--first-step", metavar="FILE", help="our own first step: begin with it, and arrive where it did")
    parser.add_argument("--smoke", action="store_true", help="once")
    args = parser.parse_args()
    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(1)
    is_narrow = args.dtype == "bf16"
    ours = FirstStep(args.first_step) if args.first_step else None
    fused = device.type == "cuda"
    x = torch.from_numpy(ours.images).to(device) if ours else torch.randn(args.lanes, args.batch, 3, 32, 32, device=device)
    xs = [image.to(memory_format=torch.channels_last) for image in x]
    ys = list(torch.from_numpy(ours.labels).to(device) if ours else torch.randint(0, CLASSES, (args.lanes, args.batch), device=device))
    streams = [torch.cuda.Stream(device) for _ in xs] if fused else []

    class Loop:
        """One network after the other, or each on a stream of its own."""

        def __init__(self, use_streams):
            self.networks = [Network(seeds).to(device).to(memory_format=torch.channels_last) for seeds in seeds_of(args.seeds, args.lanes)]
            if ours:
                load_first_step(self.networks, ours)
            self.optimizers = [torch.optim.SGD(n.parameters(), LR, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True, fused=fused)
                               for n in self.networks]
            self.use_streams = use_streams

        def train(self, lane, clip=CLIP):
            self.optimizers[lane].zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.bfloat16, enabled=is_narrow):
                loss = F.cross_entropy(self.networks[lane](xs[lane]), ys[lane])
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(self.networks[lane].parameters(), clip)
            self.optimizers[lane].step()
            return loss.detach()

        def weights(self):
            """The first and last of every network, [L,...]."""
            return [torch.stack([n.blocks[0][0].weight for n in self.networks]), torch.stack([n.head.weight for n in self.networks])]

        def __call__(self, clip=CLIP):
            """Returns the losses, [L]."""
            if not self.use_streams:
                return [self.train(lane, clip) for lane in range(args.lanes)]
            main_stream, losses = torch.cuda.current_stream(device), []
            for lane, stream in enumerate(streams):
                stream.wait_stream(main_stream)
                with torch.cuda.stream(stream):
                    losses.append(self.train(lane, clip))
            for stream in streams:
                main_stream.wait_stream(stream)
            return losses

    class Groups:
        """Networks of equal structure as one through vmap, their parameters stacked; the others one after the other."""

        def __init__(self):
            self.loop = Loop(use_streams=False)
            alike = groups_alike(args.seeds, args.lanes)
            self.alone = [lanes[0] for lanes in alike if len(lanes) == 1]
            self.groups = [Group(lanes, [self.loop.networks[lane] for lane in lanes], x[lanes], torch.stack(ys)[lanes])
                           for lanes in alike if len(lanes) > 1]

        def weights(self):
            first, last = self.loop.weights()
            with torch.no_grad():
                for group in self.groups:
                    first[group.lanes], last[group.lanes] = group.parameters["blocks.0.0.weight"], group.parameters["head.weight"]
            return first, last

        def __call__(self, clip=CLIP):
            losses = [None] * args.lanes
            for group in self.groups:
                for lane, loss in zip(group.lanes, group.train(clip, is_narrow)):
                    losses[lane] = loss
            for lane in self.alone:
                losses[lane] = self.loop.train(lane, clip)
            return losses

    def check(name, way):
        """Our first step by what is then timed, but for the clipping: we clip host and seeds apart, and plain torch all at once."""
        if not ours:
            return ""
        losses = torch.stack(list(way(clip=None)))
        wait(device)
        return ours.compare(name, *[values.detach().float().cpu().numpy() for values in (losses, *way.weights())], is_narrow, fused)

    shapes = f"{args.lanes} x {args.batch}, cifar_baseline"
    kind = "bf16 autocast" if is_narrow else "fp32"
    plan = (0, 1, 1) if args.smoke else (2, 5, 1)
    ways = [(f"PyTorch, a loop over networks, {args.seeds} seeds: a step", lambda: Loop(use_streams=False), "channels-last")]
    if streams:
        ways.append(("PyTorch, the same, a stream each: a step", lambda: Loop(use_streams=True), "channels-last"))
    alike = [lanes for lanes in groups_alike(args.seeds, args.lanes) if len(lanes) > 1]
    if alike:
        grouped = sum(map(len, alike))
        ways.append(("PyTorch, vmap over networks that are alike: a step", Groups,
                     f"{grouped} networks in {len(alike)} group{'s' * (len(alike) > 1)}, {args.lanes - grouped} in the loop"))
    for name, make, words in ways:
        way = make()
        checked = check(name, way)
        report(name, shapes, f"{kind}, {words}", checked=checked, **measure(way, device, *plan))
    if not alike:
        problem("no two networks are alike: vmap would be the loop")


if __name__ == "__main__":
    main()
