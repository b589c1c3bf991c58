"""gather_into from Python, called wrongly: every call ends in one sentence that names the argument, or in the right data.

Each of some hundred malformed calls runs in a fork of this process, which has imported torch: a crash or a hang is that
call's failure alone. All buffers lie between guard values: what is read from outside shows in the data, which is compared
with plain indexing, and what is written outside shows in the guards.

The seed of the random calls is printed; ESPALIER_SEED=N repeats them.
"""

import os
import random
import re
import signal
import sys
import time
import traceback
import unittest

import torch

torch.ops.load_library(os.environ["ESPALIER_OPS"])
torch.set_num_threads(1)  # threads do not survive a fork

GUARD = 64  # values before and behind each buffer
SECONDS = 20  # after which a call hangs
GUARD_OF = {torch.uint8: 251, torch.bool: True}  # data stays below 200
EXTREMES = [-(2**63), -1, 0, 2**31, 2**32 - 1, 2**62, 2**63 - 1]
# Torch's own parser refuses these before the operator sees them, in its own words.
PARSER = "parser"


def fill(tensor, value):
    """For every type: torch has no fill_ for uint16."""
    if tensor.dtype == torch.uint16:
        return tensor.view(torch.int16).fill_(value)
    return tensor.fill_(value)


class Guarded:
    """A buffer between guards; `view` is the tensor."""

    def __init__(self, sizes, dtype, channels_last=False, lane_gap=0):
        sizes = list(sizes)
        dense, strides = 1, [0] * len(sizes)
        order = list(range(len(sizes)))[::-1]
        if channels_last:  # [..., C, H, W]: C is the innermost
            c, h, w = len(sizes) - 3, len(sizes) - 2, len(sizes) - 1
            order = [c, w, h, *range(len(sizes) - 3)[::-1]]
        for axis in order:
            strides[axis] = dense
            dense *= sizes[axis]
            if axis == 1 and len(sizes) == 5:
                dense += lane_gap
        self.storage = torch.zeros(dense + 2 * GUARD, dtype=dtype)
        fill(self.storage, GUARD_OF.get(dtype, 12345))
        self.view = torch.as_strided(self.storage, sizes, strides, GUARD)
        self.dense = dense

    def guards(self):
        return torch.cat([self.storage[:GUARD].view(torch.uint8), self.storage[GUARD + self.dense:].view(torch.uint8)])


class Call:
    """A valid call, to be spoiled. Labels are 1000 + sample, so a label tells which sample was taken."""

    def __init__(self, form="stacked", plan="split", stored=torch.uint8, out_type=torch.float32, channels_last=True,
                 lanes=3, batch=4, samples=29, fields=1, position=(2, 0), group_lanes=None, shuffle=False, mask=True,
                 channels=3, lane_gap=0):
        self.form, self.buffers = form, []

        def made(sizes, dtype, **more):
            self.buffers.append(Guarded(sizes, dtype, **more))
            return self.buffers[-1].view

        generator = torch.Generator().manual_seed(3)
        sizes = [(channels, 4 + f, 5) for f in range(fields)]
        self.args = {"fields": [], "labels": made([samples], torch.int64), "affine": [],
                     "lane_ids": made([lanes], torch.int64), "position": made([2], torch.int64), "plan": plan,
                     "shuffle": shuffle, "seed": 5, "batch": batch, "group_lanes": group_lanes or lanes,
                     "augment": False, "flip": True, "crop_pad": 4, "augment_seed": 5, "out": [], "labels_out": [],
                     "mask_out": None}
        args = self.args
        for size in sizes:
            args["fields"].append(made([samples, *size], stored, channels_last=channels_last))
            values = torch.randint(0, 200, (samples, *size), generator=generator)
            args["fields"][-1].copy_(values.to(stored))
            args["affine"].append(made([2, channels], torch.float32))
            args["affine"][-1].copy_(torch.tensor([[0.5] * channels, [1.0] * channels]))
        args["labels"].copy_(torch.arange(samples) + 1000)
        args["lane_ids"].copy_(torch.arange(lanes))
        args["position"].copy_(torch.tensor(position))
        self.inputs = [buffer.storage.clone() for buffer in self.buffers]
        self.num_inputs = len(self.buffers)
        counts = [len(own) for own in self.samples()] if form == "owned" else None
        if form == "stacked":
            for size in sizes:
                args["out"].append(made([lanes, batch, *size], out_type, channels_last=channels_last, lane_gap=lane_gap))
            args["labels_out"].append(made([lanes, batch], torch.int64))
            if mask:
                args["mask_out"] = made([lanes, batch], torch.bool)
        else:
            for count in counts:
                for size in sizes:
                    args["out"].append(made([count, *size], out_type, channels_last=channels_last))
                args["labels_out"].append(made([count], torch.int64))

    def run(self):
        torch.ops.espalier.gather_into(*self.args.values())

    def samples(self):
        """Positions of each lane's order in the batch, by the plan's definition; torch's own tensor_split."""
        args = self.args
        epoch, batch = args["position"].tolist()
        assert epoch >= 0 and batch >= 0 and args["batch"] >= 1 and args["group_lanes"] >= 1
        count = args["labels"].numel()
        stride = args["batch"] * (args["group_lanes"] if args["plan"] == "split" else 1)
        taken = torch.arange(count)[min(batch * stride, count):min((batch + 1) * stride, count)]
        lanes = []
        for lane in args["lane_ids"].tolist():
            if args["plan"] == "split":
                assert 0 <= lane < args["group_lanes"], f"lane {lane} is not in the plan"
                lanes.append(taken.tensor_split(args["group_lanes"])[lane].tolist() if args["group_lanes"] < 10**6
                             else taken[lane:lane + 1].tolist())
            else:
                assert args["plan"] == "shared" or 0 <= lane < 2**32 - 1, f"lane {lane} is not in the plan"
                lanes.append(taken.tolist())
        return lanes

    def check(self):
        """After a call that was accepted: what it wrote is what plain indexing gives, and nothing else."""
        args = self.args
        lanes = self.samples()
        num_fields = len(args["fields"])
        seen = []
        for lane, positions in enumerate(lanes):
            stacked = self.form == "stacked"
            labels = args["labels_out"][0][lane] if stacked else args["labels_out"][lane]
            assert labels.numel() >= len(positions) and (stacked or labels.numel() == len(positions)), "a lane's length"
            taken = labels[:len(positions)] - 1000
            if not args["shuffle"]:
                assert taken.tolist() == positions, f"labels of lane {lane}: {labels.tolist()}, samples {positions}"
            assert all(0 <= sample < args["labels"].numel() for sample in taken.tolist()), "a label from outside"
            assert len(set(taken.tolist())) == len(positions), "a sample twice"
            seen += taken.tolist() if args["plan"] == "split" else []
            assert (labels[len(positions):] == -100).all(), "labels of samples that are not there"
            if args["mask_out"] is not None:
                want = [i < len(positions) for i in range(labels.numel())]
                assert args["mask_out"][lane].tolist() == want, "the mask"
            for f, field in enumerate(args["fields"]):
                out = args["out"][f][lane] if stacked else args["out"][lane * num_fields + f]
                scale, shift = args["affine"][f].view(2, 1, -1, 1, 1)
                want = field[taken].float() if field.dtype != torch.uint16 else field.int()[taken].float()
                if not field.dtype.is_floating_point:
                    want = want * scale + shift
                if not args["augment"]:
                    assert torch.equal(out[:len(positions)], want.to(out.dtype)), f"images of lane {lane}, field {f}"
                assert (out[len(positions):] == 0).all(), "images of samples that are not there"
        distinct = len(set(args["lane_ids"].tolist())) == len(lanes)
        assert not distinct or len(set(seen)) == len(seen), "two lanes of a group share a sample"

    def check_guards(self):
        for buffer, before in zip(self.buffers, self.inputs):
            assert torch.equal(buffer.storage.view(torch.uint8), before.view(torch.uint8)), "an input was changed"
        for buffer in self.buffers[self.num_inputs:]:
            fresh = Guarded([0], buffer.storage.dtype).storage[:1].view(torch.uint8)
            size = fresh.numel()
            assert (buffer.guards().view(-1, size) == fresh).all(), "written outside an output"


SPOILED = b"\x01"  # the call's arguments stand: what happens from here on is the operator's doing


def in_fork(body):
    """What `body` returns or raises, as text, or how the process that ran it ended. `body` takes a function that it calls before the
    operator: a process that ends earlier ended in torch's own code (it copies a tensor without memory, say), and is 'unsuited'."""
    read, write = os.pipe()
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        os.close(read)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)  # torch's notes on a crash
        try:
            text = body(lambda: os.write(write, SPOILED))
        except BaseException:
            text = "failed: " + traceback.format_exc()
        os.write(write, text.encode()[:60000])
        os._exit(0)
    os.close(write)
    end = time.monotonic() + SECONDS
    while True:
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            break
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(read)
            return f"failed: hangs for {SECONDS} s"
        time.sleep(0.001)
    with os.fdopen(read, "rb") as pipe:
        raw = pipe.read()
    if os.WIFSIGNALED(status) and not raw.startswith(SPOILED):
        return f"unsuited: {signal.Signals(os.WTERMSIG(status)).name}"
    text = raw.removeprefix(SPOILED).decode(errors="replace")
    if os.WIFSIGNALED(status):
        return f"failed: {signal.Signals(os.WTERMSIG(status)).name}"
    if os.WEXITSTATUS(status) != 0:
        return f"failed: exit code {os.WEXITSTATUS(status)}"
    return text


def outcome(make, spoil):
    """'right', 'refused: SENTENCE', 'failed: WHY' or 'unsuited: WHY' of one call."""

    def body(arguments_stand):
        call = make()
        spoil(call)
        call.inputs = [buffer.storage.clone() for buffer in call.buffers[:call.num_inputs]]
        arguments_stand()
        try:
            call.run()
        except (RuntimeError, TypeError, NotImplementedError, ValueError, OverflowError) as error:
            call.check_guards()
            return "refused: " + str(error)
        call.check_guards()
        call.check()
        return "right"

    return in_fork(body)


SENTENCE = re.compile(r"gather_into: ([a-z_]+)(\[\d+\])?: want [^\n]{1,900}$")


def named_argument(text):
    """The argument that a refusal names; none where it is not one sentence of ours."""
    match = SENTENCE.match(text.removeprefix("refused: "))
    return match.group(1) if match else None


# What may be wrong with a tensor: (what, how, whether it can be done to this one).
def twice(tensor):
    """Every second value of a buffer of twice the length: same sizes, other strides."""
    wide = torch.zeros([*tensor.shape[:-1], 2 * tensor.shape[-1]], dtype=tensor.dtype)
    return wide[..., ::2]


def emptied(tensor):
    own = tensor.clone()
    own.untyped_storage().resize_(0)
    return own


def halved(tensor):
    own = tensor.clone()
    own.untyped_storage().resize_(own.untyped_storage().nbytes() // 2)
    return own


def inferred(tensor):
    with torch.inference_mode():
        return tensor.clone()


def other_type(tensor):
    """A type that no argument has."""
    return torch.zeros(tensor.shape, dtype=torch.int16)


TENSOR_FAULTS = {
    "int16": other_type,
    "float64": lambda t: torch.zeros(t.shape, dtype=torch.float64),
    "complex64": lambda t: torch.zeros(t.shape, dtype=torch.complex64),
    "quantized": lambda t: torch.quantize_per_tensor(torch.zeros(t.shape), 1.0, 0, torch.quint8),
    "on meta": lambda t: torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta"),
    "sparse": lambda t: torch.zeros(t.shape, dtype=t.dtype if t.dtype != torch.uint16 else torch.int32).to_sparse(),
    "nested": lambda t: torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)]),
    "scalar": lambda t: torch.zeros((), dtype=t.dtype),
    "an axis more": lambda t: t.unsqueeze(0),
    "an axis less": lambda t: t.select(0, 0),
    "flat": lambda t: torch.zeros(t.numel(), dtype=t.dtype) if t.dim() > 1 else torch.zeros([1, t.numel()], dtype=t.dtype),
    "every second value": twice,
    "expanded": lambda t: torch.zeros([1] * t.dim(), dtype=t.dtype).expand(t.shape),
    "last axis expanded": lambda t: torch.zeros([*t.shape[:-1], 1], dtype=t.dtype).expand(t.shape),
    "one longer": lambda t: torch.zeros([t.shape[0] + 1, *t.shape[1:]], dtype=t.dtype),
    "one shorter": lambda t: torch.zeros([t.shape[0] - 1, *t.shape[1:]], dtype=t.dtype),
    "last axis longer": lambda t: torch.zeros([*t.shape[:-1], t.shape[-1] + 1], dtype=t.dtype),
    "without values": lambda t: torch.zeros([*t.shape[:-1], 0], dtype=t.dtype),
    "a storage of nothing": emptied,
    "half a storage": halved,
    "negated": lambda t: torch._neg_view(t),
    "requires grad": lambda t: t.clone().requires_grad_(),
    "a view of what requires grad": lambda t: t.clone().requires_grad_()[:],
    "made in inference mode": inferred,
}
FLOATS_ONLY = {"negated", "requires grad", "a view of what requires grad"}
OUTPUTS_ONLY = {"made in inference mode"}
# Where two arguments contradict each other, either may be named; a tensor of labels with one axis stands for owned outputs.
NEIGHBOURS = {"fields": {"fields", "out"}, "labels": {"fields", "labels"}, "lane_ids": {"lane_ids", "out", "labels_out"},
              "labels_out": {"labels_out", "out", "mask_out"}, "out": {"out", "labels_out"}}


def tensor_places(call):
    for name, value in call.args.items():
        if isinstance(value, torch.Tensor):
            yield name, None
        elif isinstance(value, list):
            for index in range(len(value)):
                yield name, index


def put(call, name, index, change):
    if index is None:
        call.args[name] = change(call.args[name])
    else:
        call.args[name][index] = change(call.args[name][index])


FORMS = {
    "stacked split": lambda: Call(),
    "stacked own, two fields": lambda: Call(plan="own", fields=2, out_type=torch.bfloat16, stored=torch.uint16),
    "stacked own, floats": lambda: Call(plan="own", stored=torch.float32, channels_last=False),
    "owned split": lambda: Call(form="owned", samples=9, position=(1, 0), lanes=2, batch=5),
}
# What the first form has tried already is left out of the others.
TRIED_IN = {
    "stacked own, two fields": {("fields", 1), ("affine", 1), ("out", 1)},
    "stacked own, floats": {("fields", 0)},
    "owned split": {("out", 1), ("labels_out", 1), ("position", None)},
}


def tensor_cases():
    for form, make in FORMS.items():
        example = make()
        for name, index in tensor_places(example):
            if (name, index) not in TRIED_IN.get(form, {(name, index)}):
                continue
            tensor = example.args[name] if index is None else example.args[name][index]
            for fault, change in TENSOR_FAULTS.items():
                if fault in FLOATS_ONLY and not tensor.dtype.is_floating_point:
                    continue
                if fault in OUTPUTS_ONLY and name not in ("out", "labels_out", "mask_out"):
                    continue
                names = NEIGHBOURS.get(name, {name})
                yield (f"{form}: {name}[{index}] {fault}", make,
                       lambda call, n=name, i=index, c=change: put(call, n, i, c), names)


def value_cases():
    """Numbers and lists that are wrong, or odd and right (None: the data must be right)."""

    def case(what, make, spoil, names):
        return what, make, spoil, names

    def argument(name, value):
        return lambda call: call.args.__setitem__(name, value)

    for form, plans in (("stacked", ("split", "own", "shared")), ("owned", ("split",))):
        for plan in plans:
            make = lambda plan=plan, form=form: Call(plan=plan, form=form)
            label = f"{form} {plan}"
            for value in EXTREMES:
                yield case(f"{label}: batch {value}", make, argument("batch", value),
                           {"batch", "out", "position", "group_lanes"} if value != 4 else None)
                # A group so large that its lanes get one sample or none is odd, and right.
                good = value >= 1 and (plan != "split" or (form == "stacked" and value * 4 * 29 < 2**63))
                yield case(f"{label}: group_lanes {value}", make, argument("group_lanes", value),
                           None if good else {"group_lanes", "batch", "out"})
                fits = 0 <= value < 2**20
                yield case(f"{label}: crop_pad {value}", make, argument("crop_pad", value), None if fits else {"crop_pad"})
                for place in (0, 1):
                    def move(call, place=place, value=value):
                        call.args["position"][place] = value
                    # Behind the last batch there are no samples: stacked outputs are masked, owned have other sizes.
                    stride = 4 * (3 if plan == "split" else 1)
                    good = value >= 0 and (place == 0 or (value * stride < 2**63 and (form == "stacked" or value == 0)))
                    yield case(f"{label}: position[{place}] {value}", make, move,
                               None if good else {"position", "out", "labels_out"})

                def lane(call, value=value):
                    call.args["lane_ids"][1] = value
                known = plan == "shared" or (0 <= value < (3 if plan == "split" else 2**32 - 1))
                yield case(f"{label}: lane {value}", make, lane, None if known else {"lane_ids"})
                yield case(f"{label}: seed {value}", make, argument("seed", value), None)
                yield case(f"{label}: augment_seed {value}", make, argument("augment_seed", value), None)
    for form, make in FORMS.items():
        for value in (float("nan"), float("inf"), float("-inf")):
            def scale(call, value=value):
                call.args["affine"][-1][1, 0] = value
            yield case(f"{form}: affine {value}", make, scale, {"affine"})
        for value in ("", "Split", "own ", "x" * 5000, "a\nb\x00c"):
            yield case(f"{form}: plan {value[:9]!r}", make, argument("plan", value), {"plan"})
        for name, names in (("fields", {"fields"}), ("affine", {"fields"}), ("out", {"out"}), ("labels_out", {"labels_out", "out", "mask_out"})):
            yield case(f"{form}: no {name}", make, argument(name, []), names)
            yield case(f"{form}: one more of {name}", make,
                       lambda call, name=name: call.args[name].append(call.args[name][0].clone()), names | {"out"})
    make = FORMS["stacked split"]
    for name in ("labels", "lane_ids", "position"):
        yield case(f"{name} none", make, argument(name, None), {name})  # torch makes an undefined tensor of it
    for name in ("labels", "position", "batch", "crop_pad", "plan", "fields", "out"):
        yield case(f"{name} is an object", make, argument(name, object()), PARSER)
    for name in ("fields", "affine", "out", "labels_out"):
        yield case(f"{name} with a none", make, argument(name, [None]), PARSER)
    yield case("batch 2**70", make, argument("batch", 2**70), PARSER)
    make = FORMS["owned split"]
    yield case("owned with a mask", make, argument("mask_out", torch.zeros(2, 5, dtype=torch.bool)), {"mask_out"})


def overlap_cases():
    """Outputs over inputs, over each other and over themselves; and neighbours that touch and do not overlap."""
    two = lambda: Call(fields=2, plan="own")
    owned = FORMS["owned split"]

    def same(target, t, source, s):
        def spoil(call):
            put(call, target, t, lambda old: call.args[source] if s is None else call.args[source][s])
        return spoil

    def view_of(storage_of, offset_bytes=0):
        """Moves a tensor into another argument's memory, with its own sizes, strides and type."""
        def change(old, other):
            raw = other.untyped_storage()
            start = (other.storage_offset() * other.element_size() + offset_bytes) // old.element_size()
            made = torch.empty(0, dtype=old.dtype)
            return made.set_(raw, start, old.shape, old.stride())
        return change

    def over(target, t, source, s, offset_bytes=0):
        def spoil(call):
            other = call.args[source] if s is None else call.args[source][s]
            put(call, target, t, lambda old: view_of(None, offset_bytes)(old, other))
        return spoil

    roomy = lambda: Call(plan="own", stored=torch.float32, samples=400)
    yield "labels_out is labels", lambda: Call(plan="own", samples=400), over("labels_out", 0, "labels", None), {"labels_out"}
    yield "out over fields", roomy, over("out", 0, "fields", 0), {"out"}
    yield "out over fields, by its end", roomy, over("out", 0, "fields", 0, 60 * 390 * 4), {"out"}
    yield "labels_out over fields", roomy, over("labels_out", 0, "fields", 0), {"labels_out"}
    yield "mask_out over labels", roomy, over("mask_out", None, "labels", None), {"mask_out"}
    yield "mask_out over labels_out", roomy, over("mask_out", None, "labels_out", 0), {"mask_out", "labels_out"}
    yield "mask_out over lane_ids", roomy, over("mask_out", None, "lane_ids", None), {"mask_out"}
    yield "mask_out over position", lambda: Call(plan="own", lanes=1), over("mask_out", None, "position", None), {"mask_out"}
    yield "mask_out over affine", roomy, over("mask_out", None, "affine", 0), {"mask_out"}
    yield "out over the other out", lambda: Call(fields=2, plan="own", channels=1), over("out", 1, "out", 0), {"out"}
    yield "labels_out in out", two, over("labels_out", 0, "out", 1), {"labels_out", "out"}
    yield "owned labels twice", owned, same("labels_out", 1, "labels_out", 0), {"labels_out"}
    yield "owned images twice", lambda: Call(form="owned", plan="own"), same("out", 2, "out", 0), {"out"}

    def lanes_over_each_other(call):
        out = call.args["out"][0]
        call.args["out"][0] = torch.zeros(2 * out.numel()).as_strided(out.shape, [out.stride(0) // 2, *out.stride()[1:]])
    yield "lanes that overlap by half", roomy, lanes_over_each_other, {"out"}

    def one_lane_for_all(call):
        out = call.args["out"][0]
        call.args["out"][0] = torch.zeros(out[0].numel()).as_strided(out.shape, [0, *out.stride()[1:]])
    yield "one lane for all", roomy, one_lane_for_all, {"out"}

    def interleaved(call):
        """Both fields' lanes in one buffer, by turns: they touch and do not overlap."""
        sizes = call.args["out"][0].shape
        both = torch.zeros(sizes[0], 2, sizes[1], *sizes[3:], sizes[2]).permute(0, 1, 2, 5, 3, 4)
        call.args["fields"][1] = call.args["fields"][0].clone(memory_format=torch.preserve_format)
        call.args["affine"][1] = call.args["affine"][0].clone()
        call.args["out"] = [both[:, 0], both[:, 1]]
    yield "lanes of two fields by turns", two, interleaved, None

    def neighbours(call):
        lanes, batch = call.args["labels_out"][0].shape
        raw = torch.zeros(lanes * batch * 9, dtype=torch.uint8)
        call.args["labels_out"][0] = raw[:lanes * batch * 8].view(torch.int64).view(lanes, batch)
        call.args["mask_out"] = raw[lanes * batch * 8:].view(torch.bool).view(lanes, batch)
    yield "labels and mask side by side", two, neighbours, None


def odd_cases():
    """Unusual and right."""
    for form in ("stacked", "owned"):
        for plan in ("split", "own", "shared"):
            for more in ({"samples": 0}, {"samples": 1}, {"lanes": 1}, {"batch": 1}, {"channels": 1}, {"position": (0, 1)},
                         {"position": (0, 7)}, {"samples": 5, "lanes": 7}, {"batch": 40}, {"shuffle": True},
                         {"stored": torch.bfloat16}, {"out_type": torch.float16}, {"mask": False}, {"lane_gap": 7}):
                options = {"form": form, "plan": plan, **more}
                yield f"odd {options}", lambda options=options: Call(**options), lambda call: None, None
    yield "no lane at all", lambda: Call(lanes=0, group_lanes=3), lambda call: None, None


def random_cases(count, seed):
    """Two faults at a time, of any kind: refused by a sentence, or right."""
    rng = random.Random(seed)
    faults = [case for case in [*tensor_cases(), *value_cases(), *overlap_cases()] if case[3] != PARSER]
    for number in range(count):
        options = {"form": rng.choice(["stacked", "owned"]), "plan": rng.choice(["split", "own", "shared"]),
                   "stored": rng.choice([torch.uint8, torch.uint16, torch.float32, torch.bfloat16]),
                   "out_type": rng.choice([torch.float32, torch.bfloat16, torch.float16]),
                   "channels_last": rng.random() < 0.7, "lanes": rng.randint(1, 6), "batch": rng.randint(1, 9),
                   "samples": rng.randint(0, 70), "fields": rng.randint(1, 3), "channels": rng.randint(1, 4),
                   "position": (rng.randint(0, 3), rng.randint(0, 4)), "shuffle": rng.random() < 0.5}
        first, second = rng.choice(faults), rng.choice(faults)

        def spoil(call, first=first, second=second):
            for fault in (first, second):
                try:
                    fault[2](call)
                except Exception:  # noqa: BLE001 - the fault does not suit these sizes, or the other fault
                    pass
        yield f"random {number}: {first[0]} + {second[0]} on {options}", lambda options=options: Call(**options), spoil, "any"


class GatherCallsTest(unittest.TestCase):
    def try_all(self, cases):
        counts = {"right": 0, "refused": 0}
        failures = []
        for what, make, spoil, names in cases:
            got = outcome(make, spoil)
            kind = got.split(":")[0]
            counts[kind] = counts.get(kind, 0) + 1
            argument = named_argument(got) if kind == "refused" else None
            if kind == "failed" or (kind == "unsuited" and names != "any"):  # two faults at random may not go together
                failures.append(f"{what}: {got}")
            elif names is None and kind != "right":
                failures.append(f"{what}: is right and was {got}")
            elif names == PARSER:
                if kind != "refused":
                    failures.append(f"{what}: accepted")
            elif names == "any":
                if kind == "refused" and argument is None:
                    failures.append(f"{what}: no sentence of ours: {got}")
            elif names is not None and argument not in names:
                failures.append(f"{what}: want a sentence that names {' or '.join(sorted(names))}, got {got}")
        # A crash's trace and torch's list of kernels fill pages.
        text = "\n".join(failure[:2000].split("\n\n")[0] for failure in failures[:40])
        self.assertFalse(failures, f"{len(failures)} of {sum(counts.values())} calls:\n{text}")
        print(f"{self._testMethodName}: {counts}")
        return counts

    def test_a_spoiled_tensor_is_refused_by_name(self):
        counts = self.try_all(tensor_cases())
        self.assertGreater(counts["refused"], 300)
        self.assertEqual(counts["right"], 0)

    def test_a_wrong_number_is_refused_by_name_and_an_odd_one_is_right(self):
        counts = self.try_all(value_cases())
        self.assertGreater(counts["refused"], 100)
        self.assertGreater(counts["right"], 50)

    def test_memory_that_overlaps_is_refused(self):
        counts = self.try_all(overlap_cases())
        self.assertEqual(counts["right"], 2)

    def test_odd_calls_are_right(self):
        self.assertEqual(self.try_all(odd_cases())["refused"], 0)

    def test_random_calls_are_refused_or_right(self):
        seed = int(os.environ.get("ESPALIER_SEED", random.SystemRandom().randrange(2**32)))
        print(f"ESPALIER_SEED={seed}")
        counts = self.try_all(random_cases(200, seed))
        self.assertGreater(counts["refused"], 100)


class GatherVersionsTest(unittest.TestCase):
    def test_marks_what_it_writes_as_changed(self):
        for form in ("stacked", "owned"):
            call = Call(form=form)
            written = [*call.args["out"], *call.args["labels_out"]] + ([call.args["mask_out"]] if form == "stacked" else [])
            read = [*call.args["fields"], *call.args["affine"], call.args["labels"], call.args["lane_ids"]]
            before = [tensor._version for tensor in written], [tensor._version for tensor in read]
            call.run()
            self.assertEqual([tensor._version for tensor in written], [version + 1 for version in before[0]])
            self.assertEqual([tensor._version for tensor in read], before[1])

    def test_a_buffer_saved_for_backward_and_overwritten_is_found(self):
        call = Call()
        call.run()
        weight = torch.ones((), requires_grad=True)
        loss = (call.args["out"][0] * weight).sum()
        call.run()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            loss.backward()

    def test_a_leaf_is_overwritten_under_no_grad_alone(self):
        call = Call()
        out = call.args["out"][0].requires_grad_()
        with self.assertRaisesRegex(RuntimeError, r"gather_into: out\[0\]: .*does not require grad"):
            call.run()
        with torch.no_grad():
            call.run()
        call.check()
        self.assertTrue(out.is_leaf)


if __name__ == "__main__":
    unittest.main(argv=["gather_calls_test.py"] + sys.argv[2:])
