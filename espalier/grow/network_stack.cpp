#include "espalier/grow/network_stack.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <ranges>

#include "espalier/core/error.h"
#include "espalier/grow/blend/amplitude_moves.h"
#include "espalier/grow/blend/op.h"
#include "espalier/lanes/stack.h"
#include "espalier/tensor/branches.h"

namespace espalier::grow {

// Who lives in a lane's slot.
struct Occupant {
  int32_t blueprint = kNoBlueprint;
  int32_t number = 0;  // which of the seeds that grew there

  bool operator==(const Occupant&) const = default;
};

namespace {

Occupant occupant_in(const SlotState& state) {
  return holds_seed(state.stage) ? Occupant{state.blueprint, state.num_seeds} : Occupant{};
}

int64_t slot_bytes(int64_t lanes) {
  return DeviceTable::bytes_of<uint8_t>(lanes) + DeviceTable::bytes_of<bool>(lanes) +
         DeviceTable::bytes_of<int64_t>(lanes);
}

int64_t state_bytes(int64_t lanes, int64_t slots) {
  return lanes * slots * static_cast<int64_t>(sizeof(SlotState));
}

}  // namespace

// The stacks of one slot, and what is said about each lane's seed there.
struct NetworkStack::Slot {
  Slot(int64_t lanes, int32_t num_blueprints, at::Tensor amplitudes, DeviceTable& table)
      : amplitude(std::move(amplitudes)),
        blend_operator(table.add<uint8_t>(lanes)),
        isolated(table.add<bool>(lanes)),
        holders(table.add<int64_t>(lanes)),
        occupants(static_cast<size_t>(lanes)),
        stacks(static_cast<size_t>(num_blueprints)) {}

  at::Tensor amplitude;                            // [L] f32: of the batch under way
  DeviceTable::Column<uint8_t> blend_operator;     // [L]
  DeviceTable::Column<bool> isolated;              // [L]: the seed learns unfelt
  DeviceTable::Column<int64_t> holders;            // [L]: the lane, or -1 where it holds no seed
  std::vector<Occupant> occupants;                 // [L]
  std::vector<std::unique_ptr<SeedStack>> stacks;  // by blueprint; none before the first germination

  // Room is kept as long as a slot's stacks have twice as many entries as there are lanes at most, which they
  // may have to have without it: capacities are powers of two.
  void end_changes(SeedStack::Room room) {
    const auto end_all = [&](SeedStack::Room with) {
      int64_t entries = 0;
      for (const auto& stack : stacks) {
        if (!stack) continue;
        stack->end_changes(with);
        entries += stack->capacity();
      }
      return entries;
    };
    if (end_all(room) > 2 * std::ssize(occupants)) end_all(SeedStack::Room::kNeeded);
  }

  template <class Function>
  void each_used(const Function& function) const {
    for (const auto& stack : stacks)
      if (stack && stack->capacity() > 0) function(*stack);
  }
};

NetworkStack::NetworkStack(const HostMaker& host, const HostFrame& frame, const BlueprintRegistry& blueprints,
                           at::Device device, at::ScalarType compute)
    : blueprints_(blueprints),
      tensor_options_(at::TensorOptions(device).dtype(compute == at::kDouble ? at::kDouble : at::kFloat)),
      compute_(compute),
      host_(host({.frame = frame, .options = tensor_options_, .compute = compute})),
      table_(table_bytes(num_lanes(), num_slots(), blueprints.size()), device),
      states_(table_.add<uint8_t>(state_bytes(num_lanes(), num_slots()))),
      amplitudes_(at::zeros({num_slots(), num_lanes()}, at::TensorOptions(device).dtype(at::kFloat))),
      end_of_epoch_(at::zeros({1}, at::TensorOptions(device).dtype(at::kDouble))) {
  for (int64_t slot = 0; slot < num_slots(); ++slot)
    slots_.push_back(
        std::make_unique<Slot>(num_lanes(), blueprints_.size(), amplitudes_.select(0, slot), table_));
  applied_.resize(static_cast<size_t>(num_lanes() * num_slots()));
}

NetworkStack::NetworkStack(const CnnHostOptions& options, const BlueprintRegistry& blueprints,
                           at::Device device, at::ScalarType compute)
    : NetworkStack(cnn_host(options), options.frame(), blueprints, device, compute) {}

NetworkStack::~NetworkStack() = default;

int64_t NetworkStack::table_bytes(int64_t lanes, int64_t slots, int32_t num_blueprints) {
  return DeviceTable::bytes_of<uint8_t>(state_bytes(lanes, slots)) +
         slots * (slot_bytes(lanes) + num_blueprints * SeedStack::table_bytes(lanes));
}

SeedStack& NetworkStack::stack_of(int64_t slot, int32_t blueprint) {
  auto& stack = slots_[static_cast<size_t>(slot)]->stacks[static_cast<size_t>(blueprint)];
  if (!stack) {
    const SlotSpec& spec = slots()[static_cast<size_t>(slot)];
    const Blueprint& kind = blueprints_.at(blueprint);
    stack = std::make_unique<SeedStack>(
        spec.name + "." + kind.name, kind,
        SeedBuild{.shape = {.channels = spec.channels, .height = spec.height, .width = spec.width},
                  .entries = num_lanes(),
                  .options = tensor_options_,
                  .compute = compute_,
                  .format = host_->frame().memory_format},
        table_);
  }
  return *stack;
}

GrowthReport NetworkStack::apply(std::span<const SlotState> states) {
  if (std::ssize(states) != num_lanes() * num_slots())
    fail_usage("states: want {} lanes x {} slots, got {}", num_lanes(), num_slots(), states.size());
  for (const SlotState& state : states)
    if (holds_seed(state.stage)) blueprints_.at(state.blueprint);  // refused before anything changes

  const std::string before = signature();
  GrowthReport report;
  const auto state_at = [&](int64_t lane, int64_t slot) -> const SlotState& {
    return states[static_cast<size_t>(lane * num_slots() + slot)];
  };
  for (int64_t slot = 0; slot < num_slots(); ++slot) {
    Slot& here = *slots_[static_cast<size_t>(slot)];
    for (int64_t lane = 0; lane < num_lanes(); ++lane) {
      Occupant& occupant = here.occupants[static_cast<size_t>(lane)];
      if (occupant.blueprint == kNoBlueprint || occupant == occupant_in(state_at(lane, slot))) continue;
      SeedStack& stack = stack_of(slot, occupant.blueprint);
      report.released.push_back({stack.name(), lane, slot, stack.entry_of(lane)});
      stack.release(lane);
      occupant = {};
    }
    for (int64_t lane = 0; lane < num_lanes(); ++lane) {
      const SlotState& state = state_at(lane, slot);
      Occupant& occupant = here.occupants[static_cast<size_t>(lane)];
      if (occupant != occupant_in(state)) {
        occupant = occupant_in(state);
        SeedStack& stack = stack_of(slot, occupant.blueprint);
        const HostFrame& host = host_->frame();
        const int64_t entry = stack.plant(lane, {host.seed, host.lane_id(lane), occupant.number});
        report.planted.push_back({stack.name(), lane, slot, entry});
      }
      const auto place = static_cast<size_t>(lane);
      here.blend_operator.host[place] = static_cast<uint8_t>(state.blend_operator);
      here.isolated.host[place] =
          state.stage == SeedStage::kGerminated || state.stage == SeedStage::kTraining;
      here.holders.host[place] = occupant.blueprint == kNoBlueprint ? -1 : lane;
      if (occupant.blueprint == kNoBlueprint) continue;
      SeedStack& stack = stack_of(slot, occupant.blueprint);
      if (stack.set_state(lane, state) == SeedStack::GateChange::kOpened)
        report.gated.push_back({stack.name(), lane, slot, stack.entry_of(lane)});
    }
    here.end_changes(room_);
  }
  std::memcpy(states_.host.data(), states.data(), states.size_bytes());
  table_.upload();
  move_amplitudes_(amplitudes_, states_.device, end_of_epoch_, 1);
  applied_.assign(states.begin(), states.end());
  report.new_signature = signature() != before;
  return report;
}

void NetworkStack::move_amplitudes(const at::Tensor& batch, int64_t batches_per_epoch) {
  const auto all = std::views::iota(int64_t{0}, num_slots());
  if (std::ranges::none_of(all, [&](int64_t slot) { return holds(slot); })) return;  // they stay as applied
  move_amplitudes_(amplitudes_, states_.device, batch, batches_per_epoch);
}

GrowthReport NetworkStack::reset(uint64_t seed) {
  const GrowthReport report =
      apply(std::vector<SlotState>(static_cast<size_t>(num_lanes() * num_slots()), SlotState{}));
  host_->initialise(seed);
  return report;
}

at::Tensor NetworkStack::forward(const at::Tensor& x, lanes::Mode mode, const at::Tensor& mask,
                                 const lanes::SumOverAll& sum_over_all) {
  mode_ = mode;
  return host_->forward(x, {.mode = mode, .mask = mask, .growth = this, .sum_over_all = sum_over_all});
}

HostBranches NetworkStack::forward_without_each(const at::Tensor& x, std::span<const int64_t> slots) {
  mode_ = lanes::Mode::kEvaluate;
  return host_->forward_without_each(x, slots, {.mode = mode_, .growth = this});
}

bool NetworkStack::holds(int64_t slot) const {
  bool any = false;
  slots_[static_cast<size_t>(slot)]->each_used([&](const SeedStack&) { any = true; });
  return any;
}

at::Tensor NetworkStack::holders(int64_t slot) const {
  return slots_[static_cast<size_t>(slot)]->holders.device;
}

at::Tensor NetworkStack::grow(int64_t slot, at::Tensor h) {
  const Slot& here = *slots_[static_cast<size_t>(slot)];
  std::vector<BlendTable> tables;
  here.each_used([&](const SeedStack& stack) {
    tables.push_back({.entries = stack.entries(),
                      .entry_of_lane = stack.entry_of_lane(),
                      .amplitude = here.amplitude,
                      .blend_operator = here.blend_operator.device,
                      .isolated = here.isolated.device});
  });
  const at::Device device = h.device();
  SelectedAll selected = lane_select(h, tables);
  h.reset();  // from here on its memory is `through` alone
  // Stacks with few entries in use leave most of a device idle: they run side by side.
  std::vector<Grown> grown;
  Branches branches(device, std::ssize(tables));
  here.each_used([&](SeedStack& stack) {
    const at::Tensor& input = selected.inputs[grown.size()];
    branches.run(input, [&] {
      const int64_t version = input._version();
      const SeedStack::Output output = stack.forward(input, mode_);
      TORCH_CHECK(input._version() == version, "blueprint in ", stack.name(),
                  ": forward() writes to x, which is read again on the way back: write to a copy");
      grown.push_back({output.seeds, output.gates, tables[grown.size()], input});
    });
  });
  branches.join();
  return lane_blend(std::move(selected.through), grown);
}

std::string NetworkStack::signature() const {
  std::vector<std::string> parts;
  for (const auto& slot : slots_)
    slot->each_used([&](const SeedStack& stack) {
      parts.push_back(
          fmt::format("{} x{}{}", stack.name(), stack.capacity(), stack.has_gates() ? " gated" : ""));
    });
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::vector<ParameterGroup> NetworkStack::groups() {
  std::vector<ParameterGroup> groups;
  groups.push_back({.name = "host", .parameters = host_->parameters()});
  for (int64_t slot = 0; slot < num_slots(); ++slot)
    slots_[static_cast<size_t>(slot)]->each_used([&](SeedStack& stack) {
      const std::vector<int64_t> lanes(stack.lanes().begin(), stack.lanes().end());
      groups.push_back({stack.name(), slot, stack.parameters(), stack.entries(), stack.frozen(), lanes});
      if (groups.back().parameters.empty()) groups.pop_back();  // noop
      if (stack.has_gates())
        groups.push_back({stack.name() + ".gate", slot, stack.gate_parameters(), stack.entries(),
                          stack.gate_frozen(), stack.gated_lanes()});
    });
  return groups;
}

std::vector<lanes::LaneParameter*> NetworkStack::parameters() {
  std::vector<lanes::LaneParameter*> parameters;
  for (const ParameterGroup& group : groups())
    for (const lanes::NamedParameter& named : group.parameters) parameters.push_back(named.parameter);
  return parameters;
}

std::vector<at::Tensor> NetworkStack::buffers() const {
  std::vector<at::Tensor> buffers;
  for (const Host::Buffer& buffer : host_->buffers()) buffers.push_back(buffer.tensor);
  return buffers;
}

std::vector<NamedTensor> NetworkStack::lane_values(int64_t lane) {
  if (lane < 0 || lane >= num_lanes()) fail_usage("lane: want 0 to {}, got {}", num_lanes() - 1, lane);
  std::vector<NamedTensor> values;
  for (const lanes::NamedParameter& named : host_->parameters())
    values.push_back({"host." + named.name, named.parameter->storage().select(0, lane)});
  for (const Host::Buffer& buffer : host_->buffers())
    values.push_back({"host." + buffer.name, buffer.tensor.select(0, lane)});
  for (const auto& slot : slots_)
    slot->each_used([&](SeedStack& stack) {
      const int64_t entry = stack.entry_of(lane);
      if (entry < 0) return;
      for (const lanes::NamedParameter& named : stack.all_parameters())
        values.push_back({stack.name() + "." + named.name, named.parameter->storage().select(0, entry)});
    });
  return values;
}

void NetworkStack::refresh() {
  for (const lanes::NamedParameter& named : host_->parameters()) named.parameter->refresh();
  for (const auto& slot : slots_) slot->each_used([](SeedStack& stack) { stack.refresh(); });
}

int64_t NetworkStack::num_parameters(int64_t lane) {
  int64_t count = host_->num_parameters();
  for (const auto& slot : slots_)
    slot->each_used([&](SeedStack& stack) {
      if (stack.entry_of(lane) < 0) return;
      const bool gated =
          slot->blend_operator.host[static_cast<size_t>(lane)] == static_cast<uint8_t>(BlendOperator::kGate);
      for (const lanes::NamedParameter& named : gated ? stack.all_parameters() : stack.parameters())
        count += named.parameter->storage()[0].numel();
    });
  return count;
}

}  // namespace espalier::grow
