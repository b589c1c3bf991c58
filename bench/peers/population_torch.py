"""What a PyTorch user writes to train several small networks on one GPU: peers of `espalier bench population`.

One step (forward, backward, SGD with Nesterov momentum and weight decay) of L networks of three blocks (3x3
convolution without bias, batch norm, ReLU, 2x2 max pool; base, 2 base, 4 base channels), global average pool and a
linear layer, on random images of CIFAR-10's sizes that already lie on the device. Cases:
  loop     one network after another, as torch.nn modules, channels-last
  streams  the same, each network on a stream of its own
  fused    one network whose layers are those of all lanes side by side, as HFTA does: grouped convolutions, one batch
           norm over all channels, a batched product for the heads; with torch.compile too
  vmap     torch.func.vmap over stacked parameters, the whole step through torch.compile
  mps      as many processes as there are networks (16 at most, which share them out) under CUDA MPS; on a GPU alone
Each is checked before it is timed: against one plain network in fp32, or with --first-step against our own first step,
from whose weights and images it begins. Prints one JSON line per case.
"""

import argparse
import copy
import sys

import numpy
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from first_step import FirstStep
from mps_processes import MOST_PROCESSES, measure_processes, mps_server
from torch_timing import measure, problem, report, wait

LR, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 5e-4
BN_MOMENTUM, BN_EPSILON = 0.1, 1e-5
CLASSES = 10


class PlainNetwork(nn.Sequential):
    def __init__(self, base):
        blocks, channels = [], 3
        for i in range(3):
            wider = base * 2**i
            blocks += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
            channels = wider
        super().__init__(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class FunctionalNetwork(nn.Module):
    """The same with the same parameters, without anything that vmap cannot take: the batch's statistics come back as
    values, and the compute type is explicit (statistics and the classifier stay in fp32)."""

    def __init__(self, base, dtype):
        super().__init__()
        widths = [3, base, 2 * base, 4 * base]
        self.dtype = dtype
        self.weights = nn.ParameterList(torch.empty(k, c, 3, 3) for c, k in zip(widths, widths[1:]))
        self.scales = nn.ParameterList(torch.empty(k) for k in widths[1:])
        self.shifts = nn.ParameterList(torch.empty(k) for k in widths[1:])
        self.head = nn.Linear(widths[-1], CLASSES)

    def load(self, plain):
        with torch.no_grad():
            for i in range(3):
                self.weights[i].copy_(plain[4 * i].weight)
                self.scales[i].copy_(plain[4 * i + 1].weight)
                self.shifts[i].copy_(plain[4 * i + 1].bias)
            self.head.load_state_dict(plain[-1].state_dict())
        return self

    def forward(self, x):
        statistics = []
        for weight, scale, shift in zip(self.weights, self.scales, self.shifts):
            x = F.conv2d(x, weight.to(self.dtype), padding=1)
            wide = x.float()
            var, mean = torch.var_mean(wide, dim=(0, 2, 3), correction=0)
            values = wide.shape[0] * wide.shape[2] * wide.shape[3]
            statistics.append((mean, var * (values / (values - 1))))
            a = scale * torch.rsqrt(var + BN_EPSILON)
            b = shift - mean * a
            x = F.max_pool2d(F.relu(wide * a[:, None, None] + b[:, None, None]).to(self.dtype), 2)
        return self.head(x.float().mean((2, 3))), statistics


def make_networks(lanes, base, device):
    torch.manual_seed(1)
    return [PlainNetwork(base).to(device).to(memory_format=torch.channels_last) for _ in range(lanes)]


def load_first_step(networks, step, first=0):
    """first: the lane that the first of these networks is."""
    with torch.no_grad():
        for lane, network in enumerate(networks, first):
            values = {name: torch.from_numpy(value) for name, value in step.lane(lane).items()}
            for i in range(3):
                network[4 * i].weight.copy_(values[f"host.block{i}.conv.weight"])
                network[4 * i + 1].weight.copy_(values[f"host.block{i}.norm.weight"])
                network[4 * i + 1].bias.copy_(values[f"host.block{i}.norm.bias"])
            network[-1].weight.copy_(values["host.classifier.weight"])
            network[-1].bias.copy_(values["host.classifier.bias"])


def make_loop(networks, xs, ys, dtype, device, use_streams):
    """A step over all networks; returns their losses."""
    fused = device.type == "cuda"
    optimizers = [torch.optim.SGD(n.parameters(), LR, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True, fused=fused) for n in networks]
    streams = [torch.cuda.Stream(device) for _ in networks] if use_streams else []

    def train(lane):
        optimizers[lane].zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = F.cross_entropy(networks[lane](xs[lane]), ys[lane])
        loss.backward()
        optimizers[lane].step()
        return loss.detach()

    def step():
        if not use_streams:
            return [train(lane) for lane in range(len(networks))]
        main, losses = torch.cuda.current_stream(device), []
        for lane, stream in enumerate(streams):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                losses.append(train(lane))
        for stream in streams:
            main.wait_stream(stream)
        return losses

    return step


class VmapStep:
    """The step of all lanes as one function of stacked tensors, updated in place."""

    def __init__(self, networks, x, y, dtype, device, compile_options):
        base = networks[0][0].out_channels
        functional = [FunctionalNetwork(base, dtype).to(device).load(n) for n in networks]
        parameters, _ = stack_module_state(functional)
        self.parameters = {name: value.detach() for name, value in parameters.items()}
        self.momenta = {name: torch.zeros_like(value) for name, value in self.parameters.items()}
        widths = [base, 2 * base, 4 * base]
        self.running = [(torch.zeros(len(networks), k, device=device), torch.ones(len(networks), k, device=device)) for k in widths]
        self.x, self.y = x, y
        skeleton = copy.deepcopy(functional[0]).to("meta")

        def loss_of(parameters, x, y):
            logits, statistics = functional_call(skeleton, parameters, (x,))
            return F.cross_entropy(logits, y), statistics

        gradients = vmap(grad_and_value(loss_of, has_aux=True))

        def step(parameters, momenta, running, x, y):
            grads, (losses, statistics) = gradients(parameters, x, y)
            for name, value in parameters.items():
                g = grads[name] + WEIGHT_DECAY * value
                momenta[name].mul_(MOMENTUM).add_(g)
                value.sub_(LR * (g + MOMENTUM * momenta[name]))
            for (mean, var), (batch_mean, batch_var) in zip(running, statistics):
                mean.lerp_(batch_mean, BN_MOMENTUM)
                var.lerp_(batch_var, BN_MOMENTUM)
            return losses

        if compile_options is not None:
            # Fixed addresses: so that graphs may update them in place, without copies in and out.
            for value in [*self.parameters.values(), *self.momenta.values(), *sum(self.running, ()), x, y]:
                torch._dynamo.mark_static_address(value)
            step = torch.compile(step, fullgraph=True, dynamic=False, **compile_options)
        self.step = step

    def __call__(self):
        with torch.no_grad():
            return self.step(self.parameters, self.momenta, self.running, self.x, self.y)


class FusedNetworks(nn.Module):
    """L networks of equal shape as one: lane l has channels l C to (l + 1) C - 1 of every layer."""

    def __init__(self, networks):
        super().__init__()
        self.lanes = len(networks)
        self.convs, self.norms = nn.ModuleList(), nn.ModuleList()
        for i in range(3):
            plain = networks[0][4 * i]
            conv = nn.Conv2d(self.lanes * plain.in_channels, self.lanes * plain.out_channels, 3, padding=1, groups=self.lanes, bias=False)
            norm = nn.BatchNorm2d(self.lanes * plain.out_channels)
            with torch.no_grad():
                conv.weight.copy_(torch.cat([n[4 * i].weight for n in networks]))
                norm.weight.copy_(torch.cat([n[4 * i + 1].weight for n in networks]))
                norm.bias.copy_(torch.cat([n[4 * i + 1].bias for n in networks]))
            self.convs.append(conv)
            self.norms.append(norm)
        self.head = nn.Parameter(torch.stack([n[-1].weight.detach() for n in networks]))  # [L,classes,features]
        self.bias = nn.Parameter(torch.stack([n[-1].bias.detach() for n in networks])[:, None])  # [L,1,classes]

    def forward(self, x):
        """x: [B,L*3,H,W]; returns [L,B,classes]."""
        for conv, norm in zip(self.convs, self.norms):
            x = F.max_pool2d(F.relu(norm(conv(x))), 2)
        features = x.mean((2, 3)).unflatten(1, (self.lanes, -1)).transpose(0, 1)  # [L,B,features]
        return torch.baddbmm(self.bias.to(features.dtype), features, self.head.to(features.dtype).transpose(1, 2))


class FusedStep:
    def __init__(self, networks, x, y, dtype, device, compile_options):
        self.network = FusedNetworks(networks).to(device).to(memory_format=torch.channels_last)
        self.forward = torch.compile(self.network, dynamic=False, **compile_options) if compile_options is not None else self.network
        self.optimizer = torch.optim.SGD(self.network.parameters(), LR, MOMENTUM, weight_decay=WEIGHT_DECAY, nesterov=True,
                                         fused=device.type == "cuda")
        self.x = x.transpose(0, 1).flatten(1, 2).contiguous(memory_format=torch.channels_last)  # [B,L*3,H,W]
        self.y, self.dtype, self.device = y, dtype, device

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.dtype == torch.bfloat16):
            logits = self.forward(self.x).float()
        losses = F.cross_entropy(logits.flatten(0, 1), self.y.flatten(), reduction="none").view(self.y.shape).mean(1)
        losses.sum().backward()  # lanes share nothing: each has the gradient of its own loss
        self.optimizer.step()
        return losses.detach()

    def weights(self):
        """The first and last of every lane, [L,...]."""
        first = self.network.convs[0].weight
        return first.unflatten(0, (len(self.y), -1)), self.network.head


def make_share(first, lanes, batch, base, dtype, device_name, first_step):
    """What one process of the case mps trains: networks from `first` on; of our own first step where its file is given.
    Returns its step, and what makes losses, first and last weights of the step's losses."""
    device = torch.device(device_name)
    torch.backends.cudnn.benchmark = True
    networks = make_networks(lanes, base, device)
    x = torch.randn(lanes, batch, 3, 32, 32, device=device)
    y = torch.randint(0, CLASSES, (lanes, batch), device=device)
    if first_step:
        ours = FirstStep(first_step)
        load_first_step(networks, ours, first)
        x.copy_(torch.from_numpy(ours.images[first : first + lanes]))
        y.copy_(torch.from_numpy(ours.labels[first : first + lanes]))
    step = make_loop(networks, [image.to(memory_format=torch.channels_last) for image in x], list(y), dtype, device, use_streams=False)

    def outcome(losses):
        wait(device)
        weights = ([n[0].weight for n in networks], [n[-1].weight for n in networks])
        return [torch.stack(values).detach().float().cpu().numpy() for values in (losses, *weights)]

    return step, outcome


def shares_of(lanes, processes):
    """The first network of each process, and how many it has."""
    counts = [lanes // processes + (i < lanes % processes) for i in range(processes)]
    return [(sum(counts[:i]), count) for i, count in enumerate(counts)]


def compare_shares(ours, name, shares, is_narrow, is_gpu):
    """The first step of all processes, in their order, against ours."""
    return ours.compare(name, *map(numpy.concatenate, zip(*shares)), is_narrow, is_gpu) if ours else ""


def check(name, losses, first, last, plain, x, y, dtype, device):
    """The first step of all lanes against one plain network in fp32: the loss, and how the first and last weight changed."""
    before = [plain[0].weight.clone(), plain[-1].weight.clone()]
    [loss] = make_loop([plain], [x[0]], [y[0]], torch.float32, device, use_streams=False)()
    wait(device)
    want = [plain[0].weight - before[0], plain[-1].weight - before[1]]
    far = [float((now[0] - old - change).detach().norm() / change.detach().norm()) for now, old, change in zip((first, last), before, want)]
    # bf16 keeps 8 bits and TF32, which convolutions use on a GPU, 11; gradients are sums of either sign, and lose more.
    loss_limit, change_limit = (0.02, 0.2) if dtype == torch.bfloat16 else (0.005, 0.05) if device.type == "cuda" else (1e-5, 1e-3)
    if not (abs(losses[0] - loss) <= loss_limit * loss and max(far) <= change_limit):
        sys.exit(f"{name}: loss {float(losses[0]):.5f} instead of {float(loss):.5f}, changes {far} off")
    return f"one plain network in fp32: changes of the first and last weight within {max(far):.0e}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lanes", type=int, help="default 8; 2 with --smoke")
    parser.add_argument("--batch", type=int, help="default 512; 4 with --smoke")
    parser.add_argument("--base", type=int, help="default 32; 4 with --smoke")
    parser.add_argument("--cases", default="loop,streams,fused,vmap,mps", help="which of loop, streams, fused, vmap, mps (default: all)")
    parser.add_argument("--dtype", default="bf16", help="fp32, bf16, or both with a comma")
    parser.add_argument("--modes", default="reduce-overhead", help="torch.compile's modes, with commas: each is a case")
    parser.add_argument("--first-step", metavar="FILE", help="our own first step: begin with it, and arrive where it did")
    parser.add_argument("--smoke", action="store_true", help="small, once, without code generation")
    args = parser.parse_args()
    # What is given holds with --smoke too: the harness compares equal shapes.
    for name, usual, small in (("lanes", 8, 2), ("batch", 512, 4), ("base", 32, 4)):
        if getattr(args, name) is None:
            setattr(args, name, small if args.smoke else usual)
    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")  # TF32, as convolutions have it by default
    torch.manual_seed(2)
    shapes = f"{args.lanes} x {args.batch}, base {args.base}"
    x = torch.randn(args.lanes * args.batch, 3, 32, 32, device=device).to(memory_format=torch.channels_last)
    x = x.unflatten(0, (args.lanes, args.batch))  # [L,B,3,32,32] f32, every lane channels-last
    y = torch.randint(0, CLASSES, (args.lanes, args.batch), device=device)
    ours = FirstStep(args.first_step) if args.first_step else None
    if ours:
        x.copy_(torch.from_numpy(ours.images))
        y.copy_(torch.from_numpy(ours.labels))

    def checked(name, losses, first, last, plain, dtype):
        """losses: of all lanes; first, last: their weights after the step, [L,...]; plain: the first network before it."""
        if not ours:
            return check(name, losses, first, last, plain, x, y, dtype, device)
        wait(device)
        stacked = [torch.stack(list(values)).detach().float().cpu().numpy() for values in (losses, first, last)]
        return ours.compare(name, *stacked, dtype == torch.bfloat16, device.type == "cuda")

    for dtype_name in args.dtype.split(","):
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype_name]
        kind = {"fp32": "fp32 (TF32)" if device.type == "cuda" else "fp32", "bf16": "bf16 autocast"}[dtype_name]
        for case in args.cases.split(","):
            networks = make_networks(args.lanes, args.base, device)
            if ours:
                load_first_step(networks, ours)
            plain = copy.deepcopy(networks[0])
            if case in ("streams", "mps") and device.type != "cuda":
                continue
            if case == "mps":
                try:
                    with mps_server() as environment:
                        processes = min(args.lanes, MOST_PROCESSES)
                        name = f"PyTorch, {processes} processes under MPS"
                        shares = [(*share, args.batch, args.base, dtype, args.device, args.first_step) for share in shares_of(args.lanes, processes)]
                        words, timing = measure_processes(make_share, shares, environment, 1 if args.smoke else 7,
                                                          lambda outcomes: compare_shares(ours, name, outcomes, dtype == torch.bfloat16, True))
                    report(name, shapes, f"{kind}, channels-last", checked=words, **timing)
                except RuntimeError as error:
                    problem(f"PyTorch, processes under MPS: {error}")
                continue
            if case == "fused":
                for compiled in (False, True):
                    torch._dynamo.reset()
                    options = ({"backend": "aot_eager"} if args.smoke else {}) if compiled else None
                    name = "PyTorch, fused modules" + (" + compile" if compiled else "")
                    step = FusedStep(networks, x, y, dtype, device, options)
                    words = checked(name, step(), *step.weights(), copy.deepcopy(plain), dtype)
                    timing = measure(step, device, *((0, 1, 1) if args.smoke else (5, 10, 2)))
                    report(name, shapes, f"{kind}, grouped convolutions, channels-last{', not compiled' if compiled and args.smoke else ''}",
                           checked=words, **timing)
                continue
            if case in ("loop", "streams"):
                name = "PyTorch, a loop over networks" + (", a stream each" if case == "streams" else "")
                step = make_loop(networks, list(x), list(y), dtype, device, use_streams=case == "streams")
                words = checked(name, step(), [n[0].weight for n in networks], [n[-1].weight for n in networks], plain, dtype)
                timing = measure(step, device, *((0, 1, 1) if args.smoke else (3, 7, 1)))
                report(name, shapes, f"{kind}, channels-last, {'fused' if device.type == 'cuda' else 'plain'} SGD", checked=words, **timing)
                continue
            for mode in args.modes.split(","):
                torch._dynamo.reset()
                options = {"backend": "aot_eager"} if args.smoke else {"mode": mode}
                name = "PyTorch, vmap + compile"
                step = VmapStep(networks, x.to(dtype), y, dtype, device, options)
                losses = step().clone()  # graphs write the next losses where these are
                words = checked(name, losses, step.parameters["weights.0"], step.parameters["head.weight"], copy.deepcopy(plain), dtype)
                timing = measure(step, device, *((0, 1, 1) if args.smoke else (10, 20, 5)))
                compute = "bf16 convolutions, fp32 weights" if dtype == torch.bfloat16 else kind
                report(name, shapes, f"{compute}, {'not compiled' if args.smoke else mode}", checked=words, **timing)


if __name__ == "__main__":
    main()
