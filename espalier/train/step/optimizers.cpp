#include "espalier/train/step/optimizers.h"

#include <ATen/ops/full.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "espalier/core/error.h"

namespace espalier::train {

LaneOptimizers::LaneOptimizers(grow::NetworkStack& population, const lanes::LaneSgdOptions& hosts,
                               const lanes::LaneSgdOptions& seeds, const StepMetrics& metrics)
    : population_(population), hosts_{.options = hosts}, seeds_{.options = seeds}, metrics_(metrics) {
  const at::TensorOptions doubles =
      at::TensorOptions(at::kDouble).device(population.parameters().front()->value().device());
  for (Kind* kind : {&hosts_, &seeds_}) {
    kind->momentum_factors = at::full({population.num_lanes()}, kind->options.momentum, doubles);
    kind->weight_decays = at::full({population.num_lanes()}, kind->options.weight_decay, doubles);
  }
  sync_groups({});
}

void LaneOptimizers::sync_groups(const grow::GrowthReport& report) {
  for (const grow::SeedPlace& seed : report.planted)
    for (const std::string& name : {seed.group, seed.group + ".gate"})
      if (const auto found = optimizers_.find(name); found != optimizers_.end())
        reset(*found->second, seed.entry);

  // A gate that was closed for a while remembers no momentum: a lane's bits would depend on whether others'
  // gates kept its optimiser in use.
  for (const grow::SeedPlace& seed : report.gated)
    if (const auto found = optimizers_.find(seed.group + ".gate"); found != optimizers_.end())
      reset(*found->second, seed.entry);

  groups_.clear();
  for (grow::ParameterGroup& group : population_.groups()) {
    std::unique_ptr<lanes::LaneSGD>& optimizer = optimizers_[group.name];
    std::vector<lanes::LaneParameter*> parameters = lanes::without_names(group.parameters);
    if (!optimizer)
      optimizer = std::make_unique<lanes::LaneSGD>(parameters, (group.slot < 0 ? hosts_ : seeds_).options);
    optimizer->use_lanes(parameters.front()->value().size(0));
    groups_.push_back({std::move(group), std::move(parameters), optimizer.get()});
  }
  list_groups();
}

void LaneOptimizers::list_groups() {
  std::vector<lanes::UpdatedGroup> listed;
  for (const OptimizedGroup& each : groups_) {
    const Kind& kind = each.is_host() ? hosts_ : seeds_;
    lanes::UpdatedGroup group{.parameters = each.parameters,
                              .optimizer = each.optimizer,
                              .lanes = each.group.entry_lanes,
                              .momentum_factors = kind.momentum_factors,
                              .weight_decays = kind.weight_decays};
    if (each.is_host()) {
      group.lanes.resize(static_cast<size_t>(population_.num_lanes()));
      std::iota(group.lanes.begin(), group.lanes.end(), 0);
    } else {
      group.frozen = each.group.frozen;
      if (each.is_seed()) group.norms = metrics_.seed_norms(each.group.slot);
    }
    listed.push_back(std::move(group));
  }
  update_.set_groups(std::move(listed));
}

// The entry may lie beyond those in use.
void LaneOptimizers::reset(lanes::LaneSGD& optimizer, int64_t entry) {
  const int64_t shown = optimizer.frozen.size(0);
  const int64_t all = optimizer.parameters().front()->storage().size(0);
  optimizer.use_lanes(all);
  const at::Tensor mask = at::zeros({all}, optimizer.frozen.options());
  mask.select(0, entry).fill_(true);
  optimizer.reset(mask);
  optimizer.use_lanes(shown);
}

std::vector<NamedTensor> LaneOptimizers::lane_state(int64_t lane) const {
  std::vector<NamedTensor> state;
  for (const OptimizedGroup& each : groups_) {
    int64_t entry = lane;
    if (!each.is_host()) {
      const auto& lanes = each.group.entry_lanes;
      const auto found = std::ranges::find(lanes, lane);
      if (found == lanes.end()) continue;
      entry = found - lanes.begin();
    }
    const std::vector<at::Tensor>& kept = each.optimizer->state();
    for (size_t i = 0; i < kept.size(); ++i)
      state.push_back({fmt::format("optimizer.{}.{}", each.group.name, i), kept[i].select(0, entry)});
  }
  return state;
}

void LaneOptimizers::reset_lane(int64_t lane) {
  for (const OptimizedGroup& each : groups_) {
    if (each.is_host()) {
      reset(*each.optimizer, lane);
      continue;
    }
    const auto found = std::ranges::find(each.group.entry_lanes, lane);
    if (found != each.group.entry_lanes.end()) reset(*each.optimizer, found - each.group.entry_lanes.begin());
  }
}

void LaneOptimizers::reset_all() {
  for (const auto& [name, optimizer] : optimizers_) {
    const int64_t shown = optimizer->frozen.size(0);
    optimizer->use_lanes(optimizer->parameters().front()->storage().size(0));
    optimizer->reset(at::ones_like(optimizer->frozen));
    optimizer->use_lanes(shown);
  }
}

}  // namespace espalier::train
