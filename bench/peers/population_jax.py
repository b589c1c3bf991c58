"""What a JAX user writes to train several small networks on one GPU: a peer of `espalier bench population`.

The step of population_torch.py (three blocks, SGD with Nesterov momentum and weight decay) for one network, then
jax.vmap over stacked parameters, or jax.lax.map, which runs one lane after the other in one program; jax.jit of the
whole, NHWC, with donated buffers. Checked before it is timed: the first and last lane against the same lane alone, in
fp32, and with --first-step all lanes against our own first step. Prints one JSON line per case; without JAX, one
{"problem": ...} on standard error and exit code 3.
"""

import argparse
import functools
import json
import os
import statistics
import sys
import time

import numpy

from first_step import FirstStep

LR, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 5e-4
BN_MOMENTUM, BN_EPSILON = 0.1, 1e-5
CLASSES = 10


def refuse(problem):
    print(json.dumps({"problem": problem}), file=sys.stderr)
    sys.exit(3)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lanes", type=int, help="default 8; 2 with --smoke")
    parser.add_argument("--batch", type=int, help="default 512; 4 with --smoke")
    parser.add_argument("--base", type=int, help="default 32; 4 with --smoke")
    parser.add_argument("--dtype", default="bf16", help="fp32, bf16, or both with a comma")
    parser.add_argument("--first-step", metavar="FILE", help="our own first step: begin with it, and arrive where it did")
    parser.add_argument("--smoke", action="store_true", help="small, once")
    args = parser.parse_args()
    # What is given holds with --smoke too: the harness compares equal shapes.
    for name, usual, small in (("lanes", 8, 2), ("batch", 512, 4), ("base", 32, 4)):
        if getattr(args, name) is None:
            setattr(args, name, small if args.smoke else usual)
    return args


def init(key, base):
    """Parameters, momenta and running statistics of one network; weights [3,3,C,K] f32."""
    widths = [3, base, 2 * base, 4 * base]
    parameters, running = {}, {}
    for i, (c, k) in enumerate(zip(widths, widths[1:])):
        bound = (1 / (9 * c)) ** 0.5
        parameters[f"conv{i}"] = jax.random.uniform(jax.random.fold_in(key, i), (3, 3, c, k), minval=-bound, maxval=bound)
        parameters[f"scale{i}"], parameters[f"shift{i}"] = jnp.ones(k), jnp.zeros(k)
        running[f"mean{i}"], running[f"var{i}"] = jnp.zeros(k), jnp.ones(k)
    bound = (1 / widths[-1]) ** 0.5
    parameters["head"] = jax.random.uniform(jax.random.fold_in(key, 3), (widths[-1], CLASSES), minval=-bound, maxval=bound)
    parameters["bias"] = jnp.zeros(CLASSES)
    return parameters, jax.tree.map(jnp.zeros_like, parameters), running


def loss_of(parameters, running, x, y, dtype):
    """x: [B,H,W,C] in the compute type; the loss in f32, and the new running statistics."""
    running = dict(running)
    for i in range(3):
        x = lax.conv_general_dilated(x, parameters[f"conv{i}"].astype(dtype), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
        wide = x.astype(jnp.float32)
        mean = wide.mean((0, 1, 2))
        var = jnp.square(wide).mean((0, 1, 2)) - jnp.square(mean)  # one pass over x, as flax has it
        count = x.shape[0] * x.shape[1] * x.shape[2]
        running[f"mean{i}"] += BN_MOMENTUM * (mean - running[f"mean{i}"])
        running[f"var{i}"] += BN_MOMENTUM * (var * (count / (count - 1)) - running[f"var{i}"])
        a = parameters[f"scale{i}"] * lax.rsqrt(var + BN_EPSILON)
        x = jax.nn.relu((wide - mean) * a + parameters[f"shift{i}"]).astype(dtype)
        # A maximum over a view: XLA fuses it and its gradient, which it does not do with reduce_window's.
        b, h, w, c = x.shape
        x = x.reshape(b, h // 2, 2, w // 2, 2, c).max((2, 4))
    logits = x.astype(jnp.float32).mean((1, 2)) @ parameters["head"] + parameters["bias"]
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
    return -picked.mean(), running


def train(dtype, state, x, y):
    parameters, momenta, running = state
    (loss, running), grads = jax.value_and_grad(loss_of, has_aux=True)(parameters, running, x, y, dtype)
    grads = jax.tree.map(lambda g, p: g + WEIGHT_DECAY * p, grads, parameters)
    momenta = jax.tree.map(lambda m, g: MOMENTUM * m + g, momenta, grads)
    parameters = jax.tree.map(lambda p, g, m: p - LR * (g + MOMENTUM * m), parameters, grads, momenta)
    return (parameters, momenta, running), loss


def begin_with(step, lanes):
    """The state of our first step: filters are [K,C,3,3] there, the head [classes,features]."""
    def values(name, order=None):
        stacked = numpy.stack([step.lane(lane)[name] for lane in range(lanes)])
        return jnp.asarray(stacked if order is None else stacked.transpose(order))

    parameters, running = {}, {}
    for i in range(3):
        parameters[f"conv{i}"] = values(f"host.block{i}.conv.weight", (0, 3, 4, 2, 1))
        parameters[f"scale{i}"], parameters[f"shift{i}"] = values(f"host.block{i}.norm.weight"), values(f"host.block{i}.norm.bias")
        running[f"mean{i}"] = jnp.zeros_like(parameters[f"scale{i}"])
        running[f"var{i}"] = jnp.ones_like(parameters[f"scale{i}"])
    parameters["head"], parameters["bias"] = values("host.classifier.weight", (0, 2, 1)), values("host.classifier.bias")
    return parameters, jax.tree.map(jnp.zeros_like, parameters), running


def compare(step, what, after, losses, dtype, on_gpu):
    """What one step came to, against ours."""
    first = numpy.asarray(after[0]["conv0"], numpy.float32).transpose(0, 4, 3, 1, 2)
    last = numpy.asarray(after[0]["head"], numpy.float32).transpose(0, 2, 1)
    return step.compare(what, numpy.asarray(losses, numpy.float32), first, last, dtype == jnp.bfloat16, on_gpu)


def over_lanes(way, dtype):
    """One step of all lanes, as a function of stacked state, images and labels."""
    one = functools.partial(train, dtype)
    if way == "vmap":
        return jax.vmap(one)
    return lambda state, x, y: lax.map(lambda lane: one(*lane), (state, x, y))


def check(all_lanes, state, x, y, dtype, on_gpu):
    """All lanes at once against each alone in fp32: losses, and how the first weight changed."""
    after, losses = jax.jit(all_lanes)(state, x.astype(dtype), y)
    alone = jax.jit(functools.partial(train, jnp.float32))
    loss_limit, change_limit = (0.02, 0.2) if dtype == jnp.bfloat16 else (0.005, 0.05) if on_gpu else (1e-5, 1e-3)
    for lane in {0, x.shape[0] - 1}:
        one = jax.tree.map(lambda value: value[lane], state)
        want, loss = alone(one, x[lane], y[lane])
        change = want[0]["conv0"] - one[0]["conv0"]
        far = jnp.linalg.norm(after[0]["conv0"][lane] - want[0]["conv0"]) / jnp.linalg.norm(change)
        if not (abs(losses[lane] - loss) <= loss_limit * loss and far <= change_limit):
            sys.exit(f"population_jax.py: lane {lane}: loss {losses[lane]:.5f} instead of {loss:.5f}, changes {far:.2e} off")
    return after, losses


def measure(step, state, x, y, warm_up, samples, calls):
    for _ in range(warm_up):
        state, losses = step(state, x, y)
    jax.block_until_ready(state)
    times, host = [], 0.0
    for _ in range(samples):
        began, cpu = time.perf_counter(), time.thread_time()
        for _ in range(calls):
            state, losses = step(state, x, y)
        host += time.thread_time() - cpu
        jax.block_until_ready((state, losses))
        times.append((time.perf_counter() - began) / calls * 1e6)
    return {"median_us": statistics.median(times), "best_us": min(times), "host_us": host / (samples * calls) * 1e6}


def main():
    args = parse()
    if args.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # other peers share the card
    global jax, jnp, lax
    try:
        import jax
        import jax.numpy as jnp
        from jax import lax
    except ImportError as error:
        refuse(f"no JAX: {error}")
    kind = "cpu" if args.device == "cpu" else "gpu"
    try:
        jax.devices(kind)
    except RuntimeError as error:
        refuse(f"JAX sees no {kind}: {str(error).splitlines()[0]}")
    if jax.default_backend() != kind:
        refuse(f"JAX would run on {jax.default_backend()} instead of {kind}")

    ours = FirstStep(args.first_step) if args.first_step else None
    keys = jax.random.split(jax.random.key(1), args.lanes)
    for dtype_name in args.dtype.split(","):
        dtype = {"fp32": jnp.float32, "bf16": jnp.bfloat16}[dtype_name]
        x = jax.random.normal(jax.random.key(2), (args.lanes, args.batch, 32, 32, 3))
        y = jax.random.randint(jax.random.key(3), (args.lanes, args.batch), 0, CLASSES)
        if ours:
            x, y = jnp.asarray(ours.images.transpose(0, 1, 3, 4, 2)), jnp.asarray(ours.labels.astype(numpy.int32))
        for way, name in (("vmap", "JAX, vmap + jit"), ("map", "JAX, lax.map + jit")):
            # Anew for each: the steps that are timed take over its buffers.
            state = begin_with(ours, args.lanes) if ours else jax.jit(jax.vmap(lambda key: init(key, args.base)))(keys)
            all_lanes = over_lanes(way, dtype)
            after, losses = check(all_lanes, state, x, y, dtype, kind == "gpu")
            words = compare(ours, name, after, losses, dtype, kind == "gpu") if ours else "each lane alone in fp32"
            step = jax.jit(all_lanes, donate_argnums=0)
            timing = measure(step, state, x.astype(dtype), y, *((0, 1, 1) if args.smoke else (10, 20, 5)))
            compute = "bf16 convolutions, fp32 weights" if dtype_name == "bf16" else "fp32"
            print(json.dumps({"name": name, "shapes": f"{args.lanes} x {args.batch}, base {args.base}", "checked": words,
                              "note": f"{compute}, NHWC, donated buffers, JAX {jax.__version__}", **timing}), flush=True)


if __name__ == "__main__":
    main()
