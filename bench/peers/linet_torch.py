"""LINet as a PyTorch user writes it, one convolution, one norm and one ReLU a stream: what the tests of LINet compare
with, and the peer of `espalier bench linet`.

  linet_torch.py --reference FILE   one case (weights, inputs, gradients, statistics) as safetensors, on the CPU
  linet_torch.py --fixtures DIR     all cases of FIXTURES: what lies in tests/linet/fixtures
  linet_torch.py                    times forward and backward; prints one JSON line per case. With --weights and
                                    --first-pass from our network and inputs, whose loss it has to give first

The network itself is python/espalier_linet.py.
"""

import argparse
import copy
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn

import first_step
from layout_torch import as_graph
from torch_timing import measure, problem, report

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
from espalier_linet import EXPANSION, LIConv, LINet  # noqa: E402

MODELS = {
    "li_resnet18": ("basic", [2, 2, 2, 2]),
    "li_resnet34": ("basic", [3, 4, 6, 3]),
    "li_resnet50": ("bottleneck", [3, 4, 6, 3]),
    "li_resnet101": ("bottleneck", [3, 4, 23, 3]),
    "li_resnet152": ("bottleneck", [3, 8, 36, 3]),
}
FILE_TYPES = {"float64": torch.float64, "float32": torch.float32}
COMPUTE_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
METADATA = ("model block stages widths width streams classes size batch mode dtype seed blank blank_stream "
            "label_smoothing")

BASIC = "--blocks basic --stages 1,1 --widths 4,6 --size 17x14 --batch 4 --classes 5"
BOTTLENECK = "--blocks bottleneck --stages 2,1 --widths 2,4 --size 15x18 --batch 4 --classes 3"
FIXTURES = {
    "basic_n1_train": f"{BASIC} --streams 3 --mode train --seed 1",
    "basic_n2_eval": f"{BASIC} --streams 3,1 --mode eval --seed 2",
    "basic_n3_train": f"{BASIC} --streams 3,1,2 --mode train --seed 3 --label-smoothing 0.1",
    "basic_n3_train_blank": f"{BASIC} --streams 3,1,2 --mode train --seed 4 --blank",
    "basic_n3_eval_blank": f"{BASIC} --streams 3,1,2 --mode eval --seed 5 --blank",
    "bottleneck_n2_train": f"{BOTTLENECK} --streams 3,1 --mode train --seed 6",
    "bottleneck_n2_eval_blank": f"{BOTTLENECK} --streams 3,1 --mode eval --seed 7 --blank",
    "bottleneck_n3_train_blank_stream": f"{BOTTLENECK} --streams 3,1,1 --mode train --seed 8 --blank --blank-stream 1",
}


def perturb(network):
    """Moves what starts symmetric or trivial, so that a swapped stream or a forgotten bias shows."""
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.normal_(0, 0.3)
                module.running_mean.normal_(0, 0.3)
                module.running_var.uniform_(0.5, 2)
                module.num_batches_tracked.fill_(7)  # one step counter for the whole network
            elif isinstance(module, LIConv):
                for mix in module.mix:
                    mix.weight.add_(torch.randn_like(mix.weight) * 0.3)


def draw_keep(args):
    """[S,B] bool; a sample always keeps the stream of its highest score."""
    scores = torch.rand(len(args.streams), args.batch)
    if args.blank_stream >= 0:
        scores[args.blank_stream] = -1
    return (scores >= (0.5 if args.blank else 0)) | (scores == scores.amax(0))


def write_reference(args):
    from safetensors.torch import save  # here, since a machine that only times may not have it

    # All numbers are drawn in float64: those of a float32 run are the same, rounded.
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(args.seed)
    network = LINet(args.block, args.stages, args.widths, args.streams, args.classes)
    perturb(network)
    inputs = [torch.randn(args.batch, c, *args.size) for c in args.streams]
    labels = torch.randint(args.classes, (args.batch,))
    keep = draw_keep(args) if args.blanks else None

    dtype = FILE_TYPES[args.dtype]
    network.to(dtype).train(args.mode == "train")
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    tensors = {f"state.{name}": value.clone() for name, value in network.state_dict().items()}
    logits = network(inputs, keep)
    loss = F.cross_entropy(logits, labels, label_smoothing=args.label_smoothing)
    loss.backward()

    tensors |= {"labels": labels, "logits": logits.detach(), "loss": loss.detach()}
    if args.blanks:
        tensors["keep"] = keep.to(torch.uint8)
    for i, x in enumerate(inputs):
        tensors |= {f"input.{i}": x.detach(), f"grad.input.{i}": x.grad}
    for name, value in network.named_parameters():
        # What no output depends on: the streams' norms behind the last layer, norms of a stream that nobody has.
        tensors[f"grad.{name}"] = torch.zeros_like(value) if value.grad is None else value.grad
    tensors |= {f"after.{name}": value for name, value in network.named_buffers()}

    metadata = {name: words(getattr(args, name)) for name in METADATA.split()}
    data = save({name: value.contiguous() for name, value in tensors.items()}, metadata)
    # The library writes the metadata in an order of chance; in ours, the same case gives the same file again.
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length]) | {"__metadata__": metadata}
    with open(args.reference, "wb") as file:
        file.write(data[:8] + json.dumps(header, separators=(",", ":")).encode().ljust(length) + data[8 + length:])


def words(value):
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


class Pass:
    """Forward and backward; leaves the loss here and the gradients in the network."""

    def __init__(self, network, xs, y, dtype):
        self.network, self.xs, self.y, self.dtype = network, xs, y, dtype
        self.scale = 1024 if dtype == torch.float16 else 1  # or small gradients round to zero

    def __call__(self):
        self.network.zero_grad(set_to_none=True)
        with torch.autocast(self.y.device.type, self.dtype, enabled=self.dtype != torch.float32):
            loss = F.cross_entropy(self.network(self.xs), self.y)
        (loss * self.scale).backward()
        self.loss = loss.detach()

    def results(self):
        """The loss, the classifier's gradient and the norm of all. (In bf16 half of an early layer's may be rounding.)"""
        gradients = [p.grad / self.scale for p in self.network.parameters() if p.grad is not None]
        return [self.loss, gradients[-2], torch.stack([g.norm() for g in gradients]).norm()]


def time_case(name, run, graphed, want, checked, shapes, smoke):
    device = run.y.device
    body = as_graph(run, device) if graphed else run
    body()
    far = [float((now - right).norm() / right.norm()) for now, right in zip(run.results(), want)]
    exact = run.dtype == torch.float32 and device.type == "cpu"
    if not all(f <= most for f, most in zip(far, (1e-5, 1e-3, 1e-3) if exact else (0.02, 0.2, 0.4))):
        raise RuntimeError(f"loss, classifier's gradient, norm of the gradients are {far} off a plain fp32 pass")
    kind = "fp32" if exact else "fp32 (TF32)" if run.dtype == torch.float32 else "autocast, fp32 weights"
    report(name, shapes, f"forward and backward, {kind}", checked=checked, **measure(body, device, *((0, 1, 1) if smoke else (5, 20, 1))))


def time_cases(args):
    device = torch.device(args.device)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")  # TF32, as convolutions have it by default
    torch.manual_seed(args.seed)
    first = LINet(args.block, args.stages, args.widths, args.streams, args.classes).to(device)
    xs = [torch.randn(args.batch, c, *args.size, device=device) for c in args.streams]
    y = torch.randint(args.classes, (args.batch,), device=device)
    ours = None
    if args.first_pass:
        ours = first_step.read(args.first_pass)
        state = {name: torch.from_numpy(value) for name, value in first_step.read(args.weights).items()}
        first.load_state_dict(state)
        xs = [torch.from_numpy(ours[f"input.{i}"]).to(device) for i in range(len(xs))]
        y = torch.from_numpy(ours["labels"]).to(device)
    plain = Pass(copy.deepcopy(first), xs, y, torch.float32)
    plain()
    want = plain.results()
    checked = "a plain pass in fp32"
    if ours:
        far = abs(float(plain.loss) - float(ours["loss"])) / float(ours["loss"])
        # bf16 keeps 8 bits.
        if not far <= (0.05 if args.dtype != "fp32" else 0.005 if device.type == "cuda" else 1e-4):
            sys.exit(f"linet_torch.py: the loss of a plain pass in fp32 is {far:.1e} off ours: one of us is wrong")
        checked = f"a plain pass in fp32, whose loss is ours within {far:.0e}"
    shapes = f"{args.model}, streams {words(args.streams)}, width {args.width:g}"
    shapes += f", batch {args.batch}, {args.size[0]}x{args.size[1]}, {args.dtype}"
    nchw, nhwc = torch.contiguous_format, torch.channels_last
    cases = [("PyTorch, eager NCHW", nchw, False, False), ("PyTorch, eager NHWC", nhwc, False, False)]
    if device.type == "cuda":
        cases += [("PyTorch, NHWC + CUDA graph", nhwc, False, True), ("PyTorch, compile + CUDA graph", nhwc, True, True)]
    failed = 0
    for name, memory_format, compiled, graphed in cases:
        try:
            network = copy.deepcopy(first).to(memory_format=memory_format)
            inputs = [x.to(memory_format=memory_format) for x in xs]
            run = Pass(torch.compile(network) if compiled else network, inputs, y, COMPUTE_TYPES[args.dtype])
            time_case(name, run, graphed, want, checked, shapes, args.smoke)
        except Exception as error:  # out of memory, no compiler: the other cases still count
            failed += 1
            problem(f"{name}: {(str(error).strip() or repr(error)).splitlines()[0]}")
    sys.exit(1 if failed == len(cases) else 0)


def numbers(text):
    return [int(number) for number in text.replace("x", ",").split(",")]


def parse(arguments):
    """The flags, with the network spelled out: block, stages, widths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reference", metavar="FILE", help="write one case as safetensors")
    parser.add_argument("--fixtures", metavar="DIR", help="write every case of FIXTURES into this folder")
    parser.add_argument("--model", choices=MODELS, default="li_resnet18")
    parser.add_argument("--blocks", choices=EXPANSION, default="basic", help="with --stages")
    parser.add_argument("--stages", type=numbers, help="blocks a stage, such as 1,1, instead of --model")
    parser.add_argument("--widths", type=numbers, help="channels a stage, instead of 64,128,256,512 times --width")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--streams", type=numbers, default=[3, 1, 1], help="channels of each stream")
    parser.add_argument("--size", type=numbers, default=[416, 544], help="HEIGHTxWIDTH")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", help="bf16 (default), fp16 or fp32; --reference: float64 (default) or float32")
    parser.add_argument("--mode", choices=["train", "eval"], default="train", help="with --reference")
    parser.add_argument("--blank", action="count", default=0, help="with --reference: blank at random, never a whole sample")
    parser.add_argument("--blank-stream", type=int, default=-1, help="with --reference: blank this one in the whole batch")
    parser.add_argument("--label-smoothing", type=float, default=0.0, help="with --reference")
    parser.add_argument("--device", default="cuda", help="what to time on")
    parser.add_argument("--weights", metavar="FILE", help="begin with these, with --first-pass")
    parser.add_argument("--first-pass", metavar="FILE", help="our inputs and the loss that they give, with --weights")
    parser.add_argument("--smoke", action="store_true", help="times small and once")
    args = parser.parse_args(arguments)

    dtypes = FILE_TYPES if args.reference or args.fixtures else COMPUTE_TYPES
    args.dtype = args.dtype or next(iter(dtypes))
    if args.dtype not in dtypes:
        parser.error(f"--dtype: want one of {', '.join(dtypes)}, got {args.dtype}")
    if args.smoke:
        args.batch, args.size, args.width = 2, [64, 64], 0.125
    if args.stages:
        args.model, args.block = "custom", args.blocks
    else:
        args.block, args.stages = MODELS[args.model]
    args.widths = args.widths or [int(64 * 2**n * args.width) for n in range(len(args.stages))]
    if len(args.widths) != len(args.stages):
        parser.error(f"--widths: want one a stage, {len(args.stages)}, got {len(args.widths)}")
    args.blanks = args.blank or args.blank_stream >= 0
    if args.blanks and not len(args.streams) > max(1, args.blank_stream):
        parser.error("--blank, --blank-stream: want one of two streams or more, since every sample keeps one")
    return args


def main():
    args = parse(sys.argv[1:])
    if args.fixtures:
        for name, flags in FIXTURES.items():
            write_reference(parse(["--reference", f"{args.fixtures}/{name}.safetensors", *flags.split()]))
    elif args.reference:
        write_reference(args)
    else:
        time_cases(args)


if __name__ == "__main__":
    main()
