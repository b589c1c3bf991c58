#include "espalier/grow/export/python.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/grow/host/registry.h"

namespace espalier::grow {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kAdd = R"py(class Add(nn.Module):
    """x + amplitude (seed(x) - x)"""

    def __init__(self, seed, amplitude):
        super().__init__()
        self.seed = seed
        self.amplitude = amplitude

    def forward(self, x):
        return x + self.amplitude * (self.seed(x) - x)
)py";

constexpr const char* kMultiply = R"py(class Multiply(nn.Module):
    """x (1 + amplitude tanh(seed(x) - x))"""

    def __init__(self, seed, amplitude):
        super().__init__()
        self.seed = seed
        self.amplitude = amplitude

    def forward(self, x):
        return x * (1 + self.amplitude * torch.tanh(self.seed(x) - x))
)py";

constexpr const char* kGated = R"py(class Gate(nn.Module):
    """A number in (0, 1) for every image, from the means of its channels."""

    def __init__(self, channels, between):
        super().__init__()
        self.hidden = nn.Linear(channels, between)
        self.out = nn.Linear(between, 1)

    def forward(self, x):
        return torch.sigmoid(self.out(F.relu(self.hidden(x.mean(dim=(2, 3))))))[:, :, None, None]


class Gated(nn.Module):
    """x + amplitude gate(x) (seed(x) - x)"""

    def __init__(self, seed, gate, amplitude):
        super().__init__()
        self.seed = seed
        self.gate = gate
        self.amplitude = amplitude

    def forward(self, x):
        return x + self.amplitude * self.gate(x) * (self.seed(x) - x)
)py";

// JSON's strings are Python's too.
std::string names(const std::vector<std::string>& values) {
  std::vector<std::string> quoted;
  for (const std::string& value : values)
    quoted.push_back(Json(value).dump(-1, ' ', false, Json::error_handler_t::replace));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string numbers(const std::vector<double>& values) {
  return fmt::format("[{}]", fmt::join(values, ", "));
}

// The classes of a file, each once.
class Classes {
 public:
  void add(const PythonClass& added) {
    if (const auto fault = add_unless_faulty(added)) fail("export: {}", *fault);
  }
  // What keeps it out; none: it is there.
  std::optional<std::string> add_unless_faulty(const PythonClass& added) {
    const auto found = std::ranges::find(all_, added.name, &PythonClass::name);
    if (found == all_.end()) {
      all_.push_back(added);
    } else if (found->definition != added.definition) {
      return fmt::format("two things are called '{}' in Python and are not the same; rename one of them",
                         added.name);
    }
    return std::nullopt;
  }
  std::string text() const {
    std::string text;
    for (const PythonClass& each : all_) text += "\n\n" + each.definition;
    return text;
  }

 private:
  std::vector<PythonClass> all_;
};

HostFrame frame_of(const NetworkDescription& network) {
  return {.lanes = 1,
          .in_channels = network.channels,
          .height = network.height,
          .width = network.width,
          .num_classes = network.num_classes()};
}

std::vector<SlotSpec> slots_of(const HostKind& kind, const HostFrame& frame) {
  return kind.make({.frame = frame, .options = at::TensorOptions(at::kFloat)})->slots();
}

SeedShape shape_in(const SlotSpec& slot) {
  return {.channels = slot.channels, .height = slot.height, .width = slot.width};
}

std::string without_python(const HostKind& kind) {
  return fmt::format(
      "host '{}' does not describe itself in Python (HostKind::python), so that its networks cannot be "
      "exported",
      kind.name);
}

// The seed with its blending: "Add(ConvLight(8, groups=8), amplitude=0.7)".
std::string blended(const SeedDescription& seed, const PythonSeed& python, const SlotSpec& slot,
                    Classes& classes) {
  const std::string made = fmt::format("{}({})", python.type.name, python.arguments);
  const float amplitude = seed.state.amplitude;
  switch (seed.state.blend_operator) {
    case BlendOperator::kAdd:
      classes.add({"Add", kAdd});
      return fmt::format("Add({}, amplitude={})", made, amplitude);
    case BlendOperator::kMultiply:
      classes.add({"Multiply", kMultiply});
      return fmt::format("Multiply({}, amplitude={})", made, amplitude);
    case BlendOperator::kGate:
      classes.add({"Gated", kGated});
      return fmt::format("Gated({}, Gate({}, between={}), amplitude={})", made, slot.channels,
                         std::max<int64_t>(8, slot.channels / 4), amplitude);
  }
  fail("slot {}: blend operator {} is unknown", slot.name, static_cast<int>(seed.state.blend_operator));
}

struct Body {
  std::string made;     // lines of __init__()
  std::string forward;  // lines of forward()
};

Body body_of(const NetworkDescription& network, const PythonHost& host, const std::vector<SlotSpec>& slots,
             const BlueprintRegistry& blueprints, Classes& classes) {
  Body body;
  for (const PythonStep& step : host.steps) {
    if (step.slot.empty()) {
      if (!step.module.empty()) body.made += fmt::format("        self.{} = {}\n", step.module, step.made);
      body.forward += fmt::format("        {}\n", step.forward);
      continue;
    }
    const auto seed = std::ranges::find(network.seeds, step.slot, &SeedDescription::slot);
    if (seed == network.seeds.end() || !is_felt(*seed)) continue;
    const auto slot = std::ranges::find(slots, step.slot, &SlotSpec::name);
    if (slot == slots.end())
      fail("host '{}': its Python has a slot '{}' that it does not have", network.host, step.slot);
    const Blueprint& blueprint = blueprints.at(blueprints.index_of(seed->blueprint));
    if (!blueprint.python)
      fail(
          "blueprint '{}', which stands in slot {}, does not describe itself in Python (Blueprint::python), "
          "so that "
          "this network cannot be exported",
          blueprint.name, step.slot);
    const PythonSeed python = blueprint.python(shape_in(*slot));
    classes.add(python.type);
    body.made += fmt::format("        self.{} = {}\n", step.slot, blended(*seed, python, *slot, classes));
    body.forward += fmt::format("        x = self.{}(x)\n", step.slot);
  }
  return body;
}

constexpr const char* kFile = R"py("""A network that espalier grew: host {host}, lane {lane}, {seeds}.

    import {stem}

    model = {stem}.load()  # reads {stem}.safetensors, which lies beside this file
    logits = model({stem}.normalise(pixels))  # pixels: integers from 0 to {scale}, [N, {channels}, {height}, {width}]
    names = [{stem}.CLASSES[k] for k in logits.argmax(dim=1)]

From here on it is plain PyTorch:

    image = torch.zeros(1, {channels}, {height}, {width})
    torch.export.export(model, (image,))
    torch.onnx.export(model, (image,), "{stem}.onnx")
"""

import pathlib

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = {classes}
# The training data's, one number for each channel, for pixels scaled to [0, 1].
MEAN = {mean}
DEVIATION = {deviation}


def normalise(pixels):
    """Integers from 0 to {scale}, [N, {channels}, {height}, {width}], as the network wants them."""
    mean = torch.tensor(MEAN, device=pixels.device)[:, None, None]
    deviation = torch.tensor(DEVIATION, device=pixels.device)[:, None, None]
    return (pixels.float() / {scale} - mean) / deviation


def load(path=pathlib.Path(__file__).with_suffix(".safetensors")):
    """The network with its values, to be evaluated."""
    from safetensors.torch import load_file

    model = Network()
    model.load_state_dict(load_file(path))
    return model.eval()
{definitions}

class Network(nn.Module):
    """Normalised images [N, {channels}, {height}, {width}] to logits [N, {num_classes}]."""

    def __init__(self):
        super().__init__()
{made}
    def forward(self, x):
{forward}        return x
)py";

std::string seeds_text(const NetworkDescription& network) {
  const auto felt = std::ranges::count_if(network.seeds, is_felt);
  return felt == 0 ? "nothing grew on it" : fmt::format("{} seed{}", felt, felt == 1 ? "" : "s");
}

}  // namespace

std::string python_text(const NetworkDescription& network, const BlueprintRegistry& blueprints,
                        const std::string& stem) {
  const HostKind& kind = hosts().at(network.host);
  if (!kind.python) fail("{}", without_python(kind));
  const HostFrame frame = frame_of(network);
  const PythonHost host = kind.python(frame);
  const std::vector<SlotSpec> slots = slots_of(kind, frame);
  Classes classes;
  for (const PythonClass& each : host.classes) classes.add(each);
  const Body body = body_of(network, host, slots, blueprints, classes);
  using fmt::arg;
  return fmt::format(fmt::runtime(kFile), arg("host", network.host), arg("lane", network.origin.lane),
                     arg("seeds", seeds_text(network)), arg("stem", stem), arg("channels", network.channels),
                     arg("height", network.height), arg("width", network.width),
                     arg("scale", network.full_scale), arg("classes", names(network.classes)),
                     arg("mean", numbers(network.mean)), arg("deviation", numbers(network.deviation)),
                     arg("definitions", classes.text()), arg("num_classes", network.num_classes()),
                     arg("made", body.made), arg("forward", body.forward));
}

std::optional<std::string> fault_in_python(const NetworkDescription& bare,
                                           const std::vector<std::string>& planted,
                                           const BlueprintRegistry& blueprints) {
  const HostKind& kind = hosts().at(bare.host);
  if (!kind.python) return without_python(kind);
  const HostFrame frame = frame_of(bare);
  Classes classes;
  for (const PythonClass& each : kind.python(frame).classes)
    if (auto fault = classes.add_unless_faulty(each)) return fault;
  if (planted.empty()) return std::nullopt;
  const std::vector<PythonClass> blends{{"Add", kAdd}, {"Multiply", kMultiply}, {"Gated", kGated}};
  for (const PythonClass& each : blends)
    if (auto fault = classes.add_unless_faulty(each)) return fault;
  const std::vector<SlotSpec> slots = slots_of(kind, frame);
  for (const std::string& name : planted) {
    const Blueprint& blueprint = blueprints.at(blueprints.index_of(name));
    if (!blueprint.python)
      return fmt::format(
          "blueprint '{}' does not describe itself in Python (Blueprint::python), so that networks with such "
          "seeds cannot be exported",
          name);
    for (const SlotSpec& slot : slots)
      if (auto fault = classes.add_unless_faulty(blueprint.python(shape_in(slot)).type)) return fault;
  }
  return std::nullopt;
}

}  // namespace espalier::grow
