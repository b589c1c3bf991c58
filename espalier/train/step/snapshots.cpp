#include "espalier/train/step/snapshots.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "espalier/run/archive.h"

namespace espalier::train {
namespace {

// On a GPU a few launches instead of one per tensor: torch copies a list at once where all of it is of one
// type and lies as what it is copied to, and tensor by tensor where a single one does not.
class Copies {
 public:
  void add(const at::Tensor& to, const at::Tensor& from) {
    const bool is_alike = to.scalar_type() == from.scalar_type() && to.strides() == from.strides();
    List& list = lists_[is_alike ? static_cast<int>(to.scalar_type()) : kOthers];
    list.to.push_back(to);
    list.from.push_back(from);
  }
  void run() const {
    for (const auto& [type, list] : lists_) at::_foreach_copy_(list.to, list.from);
  }

 private:
  static constexpr int kOthers = -1;
  struct List {
    std::vector<at::Tensor> to, from;
  };
  std::map<int, List> lists_;  // by type
};

// Tensors that lie as the values do: those of the same name in an older snapshot, and new ones.
std::vector<NamedTensor> memory_for(const std::vector<NamedTensor>& values,
                                    const std::vector<NamedTensor>& older) {
  std::map<std::string_view, const at::Tensor*> by_name;
  for (const NamedTensor& each : older) by_name[each.name] = &each.tensor;
  std::vector<NamedTensor> memory;
  for (const NamedTensor& value : values) {
    const auto found = by_name.find(value.name);
    const bool fits = found != by_name.end() && found->second->sizes() == value.tensor.sizes() &&
                      found->second->scalar_type() == value.tensor.scalar_type();
    memory.push_back({value.name, fits ? *found->second : at::empty_like(value.tensor)});
  }
  return memory;
}

}  // namespace

LaneSnapshots::LaneSnapshots(grow::NetworkStack& population, TrainStep& step, grow::Lifecycle& lifecycle)
    : population_(population),
      step_(step),
      lifecycle_(lifecycle),
      snapshots_(static_cast<size_t>(population.num_lanes())) {}

std::vector<NamedTensor> LaneSnapshots::values_of(int64_t lane) const {
  std::vector<NamedTensor> values = population_.lane_values(lane);
  for (NamedTensor& each : step_.optimizers().lane_state(lane)) values.push_back(std::move(each));
  for (NamedTensor& each : values) each.tensor = each.tensor.detach();
  return values;
}

void LaneSnapshots::take(std::span<const int64_t> lanes) {
  const c10::NoGradGuard no_grad;
  Copies copies;  // of all lanes
  for (const int64_t lane : lanes) {
    Snapshot& snapshot = snapshots_[static_cast<size_t>(lane)];
    const auto states = lifecycle_.lane_states(lane);
    snapshot.states.assign(states.begin(), states.end());
    std::vector<NamedTensor> values = values_of(lane);
    if (!std::ranges::equal(snapshot.values, values, {}, &NamedTensor::name, &NamedTensor::name))
      snapshot.values = memory_for(values, snapshot.values);
    for (size_t i = 0; i < values.size(); ++i) copies.add(snapshot.values[i].tensor, values[i].tensor);
  }
  copies.run();
}

void LaneSnapshots::restore(int64_t lane) {
  lifecycle_.restore_lane(lane, snapshots_[static_cast<size_t>(lane)].states);
  step_.sync_groups(population_.apply(lifecycle_.states()));
  restore_values(lane);
}

void LaneSnapshots::restore_values(int64_t lane) {
  const c10::NoGradGuard no_grad;
  const Snapshot& snapshot = snapshots_[static_cast<size_t>(lane)];
  // What the snapshot does not have, a gate that no lane used then, begins anew.
  step_.optimizers().reset_lane(lane);
  Copies copies;
  for (const NamedTensor& live : values_of(lane)) {
    const auto kept = std::ranges::find(snapshot.values, live.name, &NamedTensor::name);
    if (kept == snapshot.values.end()) continue;
    copies.add(live.tensor, kept->tensor);
  }
  copies.run();
  population_.refresh();
}

void LaneSnapshots::visit_state(run::StateArchive& archive) {
  const auto is_host = [](const NamedTensor& value) {
    return value.name.starts_with("host.") || value.name.starts_with("optimizer.host.");
  };
  // What every lane has, all lanes as one: a few tensors instead of thousands.
  for (size_t i = 0; i < snapshots_.front().values.size(); ++i) {
    const NamedTensor& first = snapshots_.front().values[i];
    if (!is_host(first)) continue;
    std::vector<at::Tensor> lane_tensors;
    for (const Snapshot& snapshot : snapshots_)
      lane_tensors.push_back(std::ranges::find(snapshot.values, first.name, &NamedTensor::name)->tensor);
    archive.stack(first.name, lane_tensors);
  }
  for (size_t lane = 0; lane < snapshots_.size(); ++lane) {
    Snapshot& snapshot = snapshots_[lane];
    archive.part(archive.lane_name(static_cast<int64_t>(lane)), [&] {
      archive.list("states", snapshot.states);
      std::vector<std::string> names;
      for (const NamedTensor& value : snapshot.values)
        if (!is_host(value)) names.push_back(value.name);
      archive.value("names", names);
      if (archive.is_loading()) {
        std::erase_if(snapshot.values, [&](const NamedTensor& value) { return !is_host(value); });
        for (const std::string& name : names) snapshot.values.push_back({name, {}});
      }
      for (NamedTensor& value : snapshot.values)
        if (!is_host(value)) archive.any_tensor(value.name, value.tensor, step_.device());
    });
  }
}

int64_t LaneSnapshots::bytes() const {
  int64_t bytes = 0;
  for (const Snapshot& snapshot : snapshots_)
    for (const NamedTensor& each : snapshot.values) bytes += static_cast<int64_t>(each.tensor.nbytes());
  return bytes;
}

}  // namespace espalier::train
