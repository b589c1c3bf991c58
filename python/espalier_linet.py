"""LINet in PyTorch: a multi-stream residual network as plain modules, and what `espalier linet export` writes, loaded into it.

    network = load("linet.safetensors")
    logits = network(network.prepare({"rgb": images, "depth": depths}))     # [B,H,W,C] as integers, as they came
    print(network.class_names[logits[0].argmax()])

S streams run beside one integrated path. A layer convolves each stream, d_i = W_i * x_i, and the integrated path takes
z = sum_i V_i d_i + V_prev h: 1x1 convolutions of the streams' responses and of its own previous state h (docs/linet.md).
Needs torch, and safetensors for load().
"""

import functools
import json

import torch
import torch.nn.functional as F
from torch import nn

EXPANSION = {"basic": 1, "bottleneck": 4}


class LIConv(nn.Module):
    """From one state, the streams' maps and the integrated one after them, to the next. The stem has no previous."""

    def __init__(self, inputs, k, kernel, stride=1, previous=None):
        super().__init__()
        self.streams = nn.ModuleList(nn.Conv2d(c, k, kernel, stride, kernel // 2, bias=False) for c in inputs)
        self.mix = nn.ModuleList(nn.Conv2d(k, k, 1, bias=False) for _ in inputs)
        self.previous = nn.Conv2d(previous, k, 1, stride, bias=False) if previous else None
        # W_i: Conv2d's own initial values, Kaiming-uniform with a = sqrt(5).
        for mix in self.mix:
            nn.init.constant_(mix.weight, 1 / len(inputs))
        if previous == k:
            nn.init.orthogonal_(self.previous.weight)
        elif previous:
            self.previous.weight.data.mul_(0.1)

    def forward(self, state):
        *xs, h = state
        ds = [conv(x) for conv, x in zip(self.streams, xs)]
        terms = [mix(d) for mix, d in zip(self.mix, ds)]
        if self.previous is not None:
            terms.append(self.previous(h))
        return [*ds, functools.reduce(torch.add, terms)]


class StreamNorm(nn.BatchNorm2d):
    """Batch norm over the kept samples alone: the others come out as zeros; where none is kept only the counter moves.
    A single value has no variance: it is normalised with the running statistics, which stay."""

    def forward(self, x, keep=None):
        if keep is None:
            return super().forward(x)
        y = torch.zeros_like(x)
        kept = x[keep]
        if self.training and kept.numel() <= kept.size(1):
            self.num_batches_tracked += 1
            if kept.numel() > 0:
                y[keep] = F.batch_norm(kept, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        elif kept.numel() > 0:
            y[keep] = super().forward(kept)
        return y


class LINorm(nn.Module):
    def __init__(self, num_streams, k):
        super().__init__()
        self.streams = nn.ModuleList(StreamNorm(k) for _ in range(num_streams))
        self.integrated = nn.BatchNorm2d(k)

    def forward(self, state, keep):
        masks = [None] * len(self.streams) if keep is None else keep
        xs = [norm(x, mask) for norm, x, mask in zip(self.streams, state, masks)]
        return [*xs, self.integrated(state[-1])]


def relu(state):
    return [F.relu(x) for x in state]


class Block(nn.Module):
    """Basic: 3x3, 3x3. Bottleneck: 1x1, 3x3 (with the stride), 1x1 to four times the width."""

    def __init__(self, block, num_streams, channels, width, stride):
        super().__init__()
        out = width * EXPANSION[block]
        layers = [(3, stride, width), (3, 1, out)]
        if block == "bottleneck":
            layers = [(1, 1, width), (3, stride, width), (1, 1, out)]
        self.num_layers, k_in = len(layers), channels
        for n, (kernel, step, k) in enumerate(layers, 1):
            self.add_module(f"conv{n}", LIConv([k_in] * num_streams, k, kernel, step, k_in))
            self.add_module(f"bn{n}", LINorm(num_streams, k))
            k_in = k
        self.downsample = None
        if stride != 1 or channels != out:
            conv = LIConv([channels] * num_streams, out, 1, stride, channels)
            self.downsample = nn.ModuleDict({"conv": conv, "bn": LINorm(num_streams, out)})

    def forward(self, state, keep):
        identity = state
        if self.downsample is not None:
            identity = self.downsample["bn"](self.downsample["conv"](state), keep)
        for n in range(1, self.num_layers + 1):
            state = getattr(self, f"bn{n}")(getattr(self, f"conv{n}")(state), keep)
            if n < self.num_layers:
                state = relu(state)
        return relu([x + skip for x, skip in zip(state, identity)])


class LINet(nn.Module):
    def __init__(self, block, stages, widths, streams, classes, dropout=0.0):
        super().__init__()
        self.conv1 = LIConv(streams, widths[0], 7, 2)
        self.bn1 = LINorm(len(streams), widths[0])
        self.num_stages, channels = len(stages), widths[0]
        for n, (num_blocks, width) in enumerate(zip(stages, widths), 1):
            blocks = nn.ModuleList()
            for b in range(num_blocks):
                blocks.append(Block(block, len(streams), channels, width, stride=2 if n > 1 and b == 0 else 1))
                channels = width * EXPANSION[block]
            self.add_module(f"layer{n}", blocks)
        self.dropout = nn.Dropout(dropout)
        self.fc = nn.Linear(channels, classes)

    def forward(self, xs, keep=None):
        """xs[i]: [B,C_i,H,W]; keep: [S,B] bool, false where the sample's stream is blanked."""
        if keep is not None:
            xs = [torch.where(mask[:, None, None, None], x, 0) for x, mask in zip(xs, keep)]
        state = relu(self.bn1(self.conv1([*xs, None]), keep))
        state = [F.max_pool2d(x, 3, 2, 1) for x in state]
        for n in range(1, self.num_stages + 1):
            for block in getattr(self, f"layer{n}"):
                state = block(state, keep)
        return self.fc(self.dropout(state[-1].mean((2, 3))))


class TrainedLINet(LINet):
    """A network with what its training knew: names of classes and streams, and how images become its inputs."""

    def __init__(self, metadata):
        numbers = {key: [int(each) for each in metadata[key].split(",")] for key in ("streams", "stages", "widths")}
        super().__init__(metadata["block"], numbers["stages"], numbers["widths"], numbers["streams"], int(metadata["classes"]))
        self.architecture = metadata.get("architecture", "")
        self.stream_names = metadata["stream_names"].split(",")
        self.class_names = json.loads(metadata["class_names"])
        self.sizes = [tuple(int(side) for side in metadata[f"size.{name}"].split("x")) for name in self.stream_names]
        for name in self.stream_names:
            full = float(metadata[f"full.{name}"])
            mean, std = (torch.tensor(json.loads(metadata[f"{key}.{name}"])) for key in ("mean", "std"))
            std = torch.where(std > 0, std, 1.0)  # a constant channel is shifted only
            self.register_buffer(f"scale_{name}", 1 / (full * std), persistent=False)
            self.register_buffer(f"shift_{name}", -mean / std, persistent=False)

    def prepare(self, images):
        """images: by the names of streams, [B,H,W,C] integers; returns the inputs of forward()."""
        inputs = []
        for name in self.stream_names:
            scale, shift = getattr(self, f"scale_{name}"), getattr(self, f"shift_{name}")
            x = torch.as_tensor(images[name]).to(scale.device).to(torch.float32) * scale + shift
            inputs.append(x.permute(0, 3, 1, 2))
        return inputs


def load(path, device="cpu"):
    """The network in a file of `espalier linet export`, ready to be asked: in evaluation mode, on the device."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata() or {}
        state = {name: file.get_tensor(name) for name in file.keys()}
    if metadata.get("kind") != "espalier.linet" or "class_names" not in metadata:
        raise ValueError(f"{path}: is no file that `espalier linet export` wrote")
    network = TrainedLINet(metadata)
    network.load_state_dict(state)
    return network.to(device).eval()
