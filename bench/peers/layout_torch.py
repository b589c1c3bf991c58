"""What channels-last is worth to a PyTorch user: peers of `espalier bench layout`.

NCHW against channels-last on one convolution (3 to 64 channels, 3x3, batch 128, 32x32) and on a network of three
blocks (3x3 convolution without bias, batch norm, ReLU, 2x2 max pool), forward and backward each. Says how long a pass
takes (as a CUDA graph), how long its convolutions take (by torch.profiler) and how many kernels a pass reformat behind
an op's back. Both layouts are compared before they are timed. Prints one JSON line per case.
"""

import argparse
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

from torch_timing import measure, report, wait

# What cuDNN calls the kernels that change a layout.
REFORMATTING = ("nchwToNhwc", "nhwcToNchw", "tensorTransform", "nhwcSliceC")
# On a GPU the ops that launch; on the CPU those that compute.
CONVOLUTIONS = ("aten::cudnn_convolution", "aten::convolution_backward", "aten::mkldnn_convolution")


def one_convolution():
    return nn.Conv2d(3, 64, 3, padding=1, bias=False)


def host(base):
    layers, channels = [], 3
    for i in range(3):
        wider = base * 2**i
        layers += [nn.Conv2d(channels, wider, 3, padding=1, bias=False), nn.BatchNorm2d(wider), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wider
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


def make_pass(network, x, memory_format, dtype):
    """Forward and backward of a copy in this layout; returns its output."""
    network = network.to(memory_format=memory_format)
    # Weights in the compute type: convolutions are timed, not casts. Norms keep fp32, as everywhere.
    for layer in network.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.to(dtype)
    x = x.to(dtype).to(memory_format=memory_format)
    y = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
    upstream = None

    def run():
        nonlocal upstream
        network.zero_grad(set_to_none=True)
        out = network(x)
        if out.dim() == 4:
            if upstream is None:
                upstream = torch.ones_like(out)
            out.backward(upstream)
        else:
            F.cross_entropy(out.float(), y).backward()
        return out.detach()

    return run


def as_graph(run, device):
    """The pass as a CUDA graph, or else the host, which launches kernels of a few microseconds, is what is timed."""
    if device.type != "cuda":
        return run
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay


def look_inside(body, device, passes):
    """(convolution time in us, reformatting kernels) of one pass."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with profile(activities=activities, acc_events=True) as profiler:
        for _ in range(passes):
            body()
        wait(device)
    convolution_us, reformatting = 0.0, 0
    for event in profiler.key_averages():
        if any(name in event.key for name in REFORMATTING):
            reformatting += event.count
        elif event.key in CONVOLUTIONS:
            convolution_us += event.self_device_time_total if device.type == "cuda" else event.cpu_time_total
    return convolution_us / passes, reformatting / passes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--base", type=int, default=32)
    parser.add_argument("--dtype", default="bf16,fp32", help="fp32, bf16, or both with a comma")
    parser.add_argument("--smoke", action="store_true", help="small, once")
    args = parser.parse_args()
    if args.smoke:
        args.batch, args.base = 4, 4
    device = torch.device(args.device)
    if device.type != "cuda":
        os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # or the profiler reports that there is no GPU
    torch.backends.cudnn.benchmark = True
    plan = (1, 1, 1) if args.smoke else (10, 100, 1)

    for dtype_name in args.dtype.split(","):
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype_name]
        for what, make in (("3 to 64 channels", one_convolution), (f"3 blocks, base {args.base}", lambda: host(args.base))):
            torch.manual_seed(1)
            x = torch.randn(args.batch, 3, 32, 32, device=device)
            base_us, first_out = None, None
            for layout, memory_format in (("NCHW", torch.contiguous_format), ("channels-last", torch.channels_last)):
                torch.manual_seed(2)
                run = make_pass(make().to(device), x, memory_format, dtype)
                out = run().float()
                if first_out is None:
                    first_out = out
                # Sums of many products in another order: a few units of the compute type's last place.
                far = float((out - first_out).abs().max() / first_out.abs().max())
                if not far <= (0.05 if dtype == torch.bfloat16 else 0.01):
                    sys.exit(f"layout_torch.py: {what}: channels-last differs from NCHW by {far:.2e} of the largest value")
                convolution_us, reformatting = look_inside(run, device, plan[1])
                timing = measure(as_graph(run, device), device, *plan)
                note = f"{dtype_name}, convolutions {convolution_us:.1f} us"
                if base_us is None:
                    base_us = convolution_us
                else:
                    note += f" ({100 * (convolution_us / base_us - 1):+.0f} %)"
                note += f", {reformatting:g} reformatting kernels"
                report(f"PyTorch, {layout}", f"{what}, batch {args.batch}, {dtype_name}", note,
                       convolution_us=convolution_us, reformatting_kernels=reformatting, **timing)


if __name__ == "__main__":
    main()
