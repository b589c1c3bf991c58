#include "espalier/grow/seeds/stack.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/grow/seeds/branch.h"
#include "espalier/lanes/active.h"

namespace espalier::grow {
namespace {

// The smallest of 0, 1, 2, 4, ..., most that is at least `entries`.
int64_t capacity_for(int64_t entries, int64_t most) {
  if (entries == 0) return 0;
  int64_t capacity = 1;
  while (capacity < entries) capacity *= 2;
  return std::min(capacity, most);
}

}  // namespace

int64_t SeedStack::table_bytes(int64_t lanes) {
  return 2 * DeviceTable::bytes_of<int64_t>(lanes) + 2 * DeviceTable::bytes_of<bool>(lanes);
}

SeedStack::SeedStack(std::string name, const Blueprint& blueprint, const SeedBuild& build, DeviceTable& table)
    : name_(std::move(name)),
      module_(blueprint.make(build)),
      gate_(build),
      gated_(static_cast<size_t>(build.entries)),
      lane_of_entry_(table.add<int64_t>(build.entries)),
      entry_of_(table.add<int64_t>(build.entries)),
      is_frozen_(table.add<bool>(build.entries)),
      is_gate_frozen_(table.add<bool>(build.entries)) {
  std::ranges::fill(lane_of_entry_.host, -1);
  std::ranges::fill(entry_of_.host, -1);
  std::ranges::fill(is_frozen_.host, true);
  std::ranges::fill(is_gate_frozen_.host, true);
  check_parameters(blueprint, build);
  for (const lanes::NamedParameter& named : all_parameters()) named.parameter->set_format(build.format);
  use_capacity(0);
}

// A blueprint of a user's own may be wrong about itself; the plan of memory and the policy's costs rely on
// it.
void SeedStack::check_parameters(const Blueprint& blueprint, const SeedBuild& build) {
  int64_t values = 0;
  for (const lanes::NamedParameter& named : module_->parameters()) {
    const at::Tensor& storage = named.parameter->storage();
    if (storage.size(0) != build.entries)
      fail_usage("blueprint '{}': {}: want {} entries, got {}", blueprint.name, named.name, build.entries,
                 storage.size(0));
    values += storage.numel() / build.entries;
  }
  if (values != blueprint.num_parameters(build.shape))
    fail_usage("blueprint '{}': want the {} parameters that num_parameters says, got {}", blueprint.name,
               blueprint.num_parameters(build.shape), values);
}

int64_t SeedStack::entry_of(int64_t lane) const {
  return entry_of_.host[static_cast<size_t>(lane)];
}

std::span<const int64_t> SeedStack::lanes() const {
  return lane_of_entry_.host.first(static_cast<size_t>(capacity_));
}

int64_t SeedStack::plant(int64_t lane, const SeedKey& key) {
  const auto free = std::ranges::find(lane_of_entry_.host, -1);
  if (entry_of(lane) >= 0 || free == lane_of_entry_.host.end())
    fail("{}: lane {} holds a seed already; this is a bug of who plants", name_, lane);
  const int64_t entry = free - lane_of_entry_.host.begin();
  *free = lane;
  entry_of_.host[static_cast<size_t>(lane)] = entry;
  const SeedInit init(key.seed, key.lane_id, fmt::format("{}.{}", name_, key.number), entry);
  module_->initialise(init);
  gate_.initialise(init);
  has_new_values_ = true;
  return entry;
}

void SeedStack::release(int64_t lane) {
  const int64_t entry = entry_of(lane);
  if (entry < 0) fail("{}: lane {} holds no seed to release; this is a bug of who releases", name_, lane);
  const auto place = static_cast<size_t>(entry);
  lane_of_entry_.host[place] = -1;
  entry_of_.host[static_cast<size_t>(lane)] = -1;
  is_frozen_.host[place] = true;
  is_gate_frozen_.host[place] = true;
  gated_[place] = false;
}

std::vector<int64_t> SeedStack::gated_lanes() const {
  std::vector<int64_t> gated(lanes().begin(), lanes().end());
  for (size_t entry = 0; entry < gated.size(); ++entry)
    if (!gated_[entry]) gated[entry] = -1;
  return gated;
}

SeedStack::GateChange SeedStack::set_state(int64_t lane, const SlotState& state) {
  const auto place = static_cast<size_t>(entry_of(lane));
  const bool was_gated = gated_[place];
  gated_[place] = state.blend_operator == BlendOperator::kGate;
  is_frozen_.host[place] = is_removing(state) || state.stage == SeedStage::kGerminated;
  // Before BLENDING nothing goes through the gate: weight decay alone would move it.
  is_gate_frozen_.host[place] =
      is_frozen_.host[place] || !gated_[place] || state.stage == SeedStage::kTraining;
  return gated_[place] && !was_gated ? GateChange::kOpened : GateChange::kNone;
}

void SeedStack::end_changes(Room room) {
  if (has_new_values_) refresh();
  has_new_values_ = false;
  const bool any_gated = std::ranges::find(gated_, true) != gated_.end();
  has_gates_ = any_gated || (room == Room::kKept && has_gates_);
  int64_t used = std::ssize(lane_of_entry_.host);
  while (used > 0 && lane_of_entry_.host[static_cast<size_t>(used - 1)] < 0) used -= 1;
  int64_t capacity = capacity_for(used, std::ssize(lane_of_entry_.host));
  if (room == Room::kKept) capacity = std::max(capacity, capacity_);
  if (capacity != capacity_) use_capacity(capacity);
}

void SeedStack::use_capacity(int64_t capacity) {
  capacity_ = capacity;
  for (const lanes::NamedParameter& named : all_parameters()) named.parameter->use_lanes(capacity);
  entries_ = lane_of_entry_.device.narrow(0, 0, capacity);
  frozen_ = is_frozen_.device.narrow(0, 0, capacity);
  gate_frozen_ = is_gate_frozen_.device.narrow(0, 0, capacity);
}

SeedStack::Output SeedStack::forward(const at::Tensor& input, lanes::Mode mode) {
  const lanes::ActiveLanes active(entries_);
  if (!has_gates_) return {module_->forward(input, mode), {}};
  const auto [to_seeds, to_gates] = lane_fork(input);
  return {module_->forward(to_seeds, mode), gate_.forward(to_gates)};
}

std::vector<lanes::NamedParameter> SeedStack::all_parameters() {
  std::vector<lanes::NamedParameter> named = module_->parameters();
  lanes::append_parameters(named, "gate.", gate_.parameters());
  return named;
}

void SeedStack::refresh() {
  for (const lanes::NamedParameter& named : all_parameters()) named.parameter->refresh();
}

}  // namespace espalier::grow
