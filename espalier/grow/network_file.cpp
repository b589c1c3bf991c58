#include "espalier/grow/network_file.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"
#include "espalier/tensor/file.h"

namespace espalier::grow {
namespace {

constexpr std::string_view kHostPrefix = "host.";
constexpr std::string_view kGatePrefix = "gate.";

// The seed whose parameter it is; none for the host's.
const SeedDescription* seed_of(const std::string& value, const std::vector<SeedDescription>& seeds) {
  for (const SeedDescription& seed : seeds)
    if (value.starts_with(seed.slot + "." + seed.blueprint + ".")) return &seed;
  return nullptr;
}

bool is_gate(const std::string& value, const SeedDescription& seed) {
  return value.substr(seed.slot.size() + seed.blueprint.size() + 2).starts_with(kGatePrefix);
}

// Where it comes from, for messages.
std::string called(const NetworkDescription& network) {
  return fmt::format("the network of lane {} of '{}'", network.origin.lane, on_one_line(network.origin.run));
}

}  // namespace

std::string exported_name(const std::string& value, const SeedDescription* seed) {
  if (seed == nullptr) return value.substr(kHostPrefix.size());
  const std::string rest = value.substr(seed->slot.size() + seed->blueprint.size() + 2);
  return fmt::format("{}.{}{}", seed->slot, is_gate(value, *seed) ? "" : "seed.", rest);
}

GrownNetwork network_of(NetworkStack& stack, int64_t lane, const NetworkDescription& described) {
  GrownNetwork network{.description = described};
  network.description.origin.lane = stack.host().frame().lane_id(lane);
  std::vector<SeedDescription>& seeds = network.description.seeds;
  seeds.clear();
  const auto slots = static_cast<size_t>(stack.num_slots());
  for (size_t slot = 0; slot < slots; ++slot) {
    SlotState state = stack.applied()[static_cast<size_t>(lane) * slots + slot];
    if (!holds_seed(state.stage)) continue;
    const std::string& blueprint = stack.blueprints().at(state.blueprint).name;
    state.blueprint = 0;
    seeds.push_back({stack.slots()[slot].name, blueprint, state});
  }
  for (const NamedTensor& value : stack.lane_values(lane)) {
    const SeedDescription* const seed = seed_of(value.name, seeds);
    if (seed != nullptr && is_gate(value.name, *seed) && seed->state.blend_operator != BlendOperator::kGate)
      continue;
    network.tensors[exported_name(value.name, seed)] =
        value.tensor.detach().to(at::kCPU, at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
  return network;
}

GrownNetwork only_felt(const GrownNetwork& network) {
  GrownNetwork felt = network;
  for (const SeedDescription& seed : network.description.seeds)
    if (!is_felt(seed))
      std::erase_if(felt.tensors,
                    [&](const auto& named) { return named.first.starts_with(seed.slot + "."); });
  std::erase_if(felt.description.seeds, [](const SeedDescription& seed) { return !is_felt(seed); });
  return felt;
}

void write_network(const std::string& path, const GrownNetwork& network) {
  write_tensors(path, {network.tensors.begin(), network.tensors.end()}, metadata_of(network.description));
}

GrownNetwork read_network(const std::string& path) {
  TensorFile file = read_tensors(path);
  GrownNetwork network{.description = network_description(file.metadata, path)};
  for (const auto& [name, tensor] : file.tensors)
    if (tensor.scalar_type() != at::kFloat)
      fail("'{}': tensor {}: want float32, got {}; the file is damaged, or of another program", path,
           in_quotes(name), c10::toString(tensor.scalar_type()));
  network.tensors = std::move(file.tensors);
  return network;
}

HostFrame frame_of(const NetworkDescription& network, int64_t lanes) {
  return {.lanes = lanes,
          .in_channels = network.channels,
          .height = network.height,
          .width = network.width,
          .num_classes = network.num_classes()};
}

std::vector<SlotState> states_of(const GrownNetwork& network, const NetworkStack& stack) {
  std::vector<SlotState> states(static_cast<size_t>(stack.num_slots()));
  int64_t values = 0;
  for (const auto& [name, tensor] : network.tensors) values += tensor.numel();
  for (const SeedDescription& seed : network.description.seeds) {
    const int64_t slot = stack.host().slot_index(seed.slot);
    const int32_t blueprint = stack.blueprints().index_of(seed.blueprint);
    const SlotSpec& spec = stack.slots()[static_cast<size_t>(slot)];
    const int64_t wanted = stack.blueprints().at(blueprint).num_parameters(
        {.channels = spec.channels, .height = spec.height, .width = spec.width});
    if (wanted > values)
      fail("{}: its '{}' in slot {} has {} values, but its tensors hold {}; it is damaged",
           called(network.description), seed.blueprint, seed.slot, wanted, values);
    SlotState& state = states[static_cast<size_t>(slot)];
    state = seed.state;
    state.blueprint = blueprint;
  }
  return states;
}

void write_values(const GrownNetwork& network, NetworkStack& stack, int64_t lane) {
  const c10::NoGradGuard no_grad;
  const std::vector<SeedDescription>& seeds = network.description.seeds;
  std::set<std::string> taken;
  for (const NamedTensor& value : stack.lane_values(lane)) {
    const SeedDescription* const seed = seed_of(value.name, seeds);
    // A gate that is not in use keeps its first values.
    if (seed != nullptr && is_gate(value.name, *seed) && seed->state.blend_operator != BlendOperator::kGate)
      continue;
    const std::string name = exported_name(value.name, seed);
    const auto found = network.tensors.find(name);
    if (found == network.tensors.end())
      fail("{}: has no tensor '{}'; it is damaged", called(network.description), name);
    if (found->second.sizes() != value.tensor.sizes())
      fail("{}: tensor '{}': want the shape {}, got {}; it is damaged", called(network.description), name,
           c10::str(value.tensor.sizes()), c10::str(found->second.sizes()));
    value.tensor.detach().copy_(found->second);
    taken.insert(name);
  }
  for (const auto& [name, tensor] : network.tensors)
    if (!taken.contains(name))
      fail("{}: tensor {} belongs to nothing in it; it is damaged", called(network.description),
           in_quotes(name));
}

void become(NetworkStack& stack, const std::vector<GrownNetwork>& networks) {
  if (std::ssize(networks) != stack.num_lanes())
    fail("want {} networks, one for each lane, got {}", stack.num_lanes(), networks.size());
  std::vector<SlotState> states;
  for (const GrownNetwork& network : networks)
    std::ranges::copy(states_of(network, stack), std::back_inserter(states));
  stack.apply(states);
  for (int64_t lane = 0; lane < stack.num_lanes(); ++lane)
    write_values(networks[static_cast<size_t>(lane)], stack, lane);
  stack.refresh();
}

}  // namespace espalier::grow
