#include "espalier/train/episode_returns.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <limits>

#include "espalier/train/state_archive.h"

namespace espalier::train {

using policy::LaneSign;
using policy::SlotSign;

EpisodeReturns::EpisodeReturns(const Environments& environments, const policy::RewardOptions& options)
    : slots_(environments.num_slots()),
      host_parameters_(static_cast<double>(environments.host_parameters())),
      reward_(environments.num_lanes(), slots_, options, at::kCPU),
      signs_(policy::empty_signs({.lanes = environments.num_lanes(), .space = {.num_slots = slots_}})),
      states_before_(signs_.states.clone()) {
  const int64_t lanes = environments.num_lanes();
  accuracy_before_ = at::zeros({lanes}, at::kFloat);
  contributions_ = at::zeros({lanes, slots_}, at::kFloat);
  num_seeds_ = at::zeros({lanes, slots_}, at::kLong);
  op_ = at::zeros({lanes}, at::kLong);
  lost_ = at::zeros({lanes}, at::kBool);
  frozen_ = at::zeros({lanes}, at::kBool);
  begin();
}

void EpisodeReturns::begin() {
  const auto lanes = static_cast<size_t>(lost_.size(0));
  contributions_.fill_(std::numeric_limits<float>::quiet_NaN());
  num_seeds_.zero_();
  lost_.zero_();
  frozen_.zero_();
  epochs_ = 0;
  last_.assign(lanes, {});
  sums_.assign(lanes, {});
  lengths_.assign(lanes, 0);
  returns_.assign(lanes, 0);
}

void EpisodeReturns::visit_state(StateArchive& archive) {
  archive.tensor("states_before", states_before_);
  archive.tensor("accuracy_before", accuracy_before_);
  archive.tensor("contributions", contributions_);
  archive.tensor("num_seeds", num_seeds_);
  archive.tensor("op", op_);
  archive.tensor("lost", lost_);
  archive.tensor("frozen", frozen_);
  archive.value("epochs", epochs_);
  archive.value("last", last_);
  archive.value("sums", sums_);
  archive.value("lengths", lengths_);
  archive.value("returns", returns_);
}

void EpisodeReturns::add(const EpochRecord& epoch, Place place) {
  auto lanes = signs_.lanes.accessor<float, 2>();
  auto slots = signs_.slots.accessor<float, 3>();
  auto kept = contributions_.accessor<float, 2>();
  auto seeds = num_seeds_.accessor<int64_t, 2>();
  auto* states = signs_.states.mutable_data_ptr<uint8_t>();
  for (size_t i = 0; i < epoch.lanes.size(); ++i) {
    const LaneRecord& lane = epoch.lanes[i];
    const auto l = static_cast<int64_t>(i);
    lanes[l][static_cast<int>(LaneSign::kValidationAccuracy)] = static_cast<float>(lane.validated.accuracy);
    lanes[l][static_cast<int>(LaneSign::kAddedParameters)] =
        static_cast<float>(static_cast<double>(lane.num_parameters) / host_parameters_ - 1);
    if (lane.outcome != LaneOutcome::kTrained) lost_.select(0, l).fill_(true);
    for (int64_t s = 0; s < slots_; ++s) {
      const SlotReport& slot = lane.slots[static_cast<size_t>(s)];
      std::memcpy(states + (l * slots_ + s) * policy::kSlotStateBytes, &slot.state, sizeof(SlotState));
      const auto& points = slot.measured.contribution_points;
      slots[l][s][static_cast<int>(SlotSign::kContributionPoints)] =
          points ? static_cast<float>(*points) : std::numeric_limits<float>::quiet_NaN();
      if (seeds[l][s] != slot.state.num_seeds) kept[l][s] = std::numeric_limits<float>::quiet_NaN();
      seeds[l][s] = slot.state.num_seeds;
    }
  }
  if (epochs_ > 0) {
    reward_.compute({.accuracy_before = accuracy_before_,
                     .states_before = states_before_,
                     .after = signs_,
                     .contributions = contributions_,
                     .op = op_,
                     .is_last = at::full({1}, place == Place::kLast, at::kBool),
                     .failed = lost_,
                     .frozen = frozen_});
    const auto terms = reward_.terms().accessor<float, 2>();
    const auto counts = reward_.counts().accessor<bool, 1>();
    for (size_t i = 0; i < last_.size(); ++i) {
      const auto l = static_cast<int64_t>(i);
      lengths_[i] += counts[l] ? 1 : 0;
      for (size_t term = 0; term < last_[i].size(); ++term) {
        last_[i][term] = terms[l][static_cast<int64_t>(term)];
        sums_[i][term] += last_[i][term];
        returns_[i] += last_[i][term];
      }
    }
    frozen_.copy_(lost_);
  }
  for (size_t i = 0; i < epoch.lanes.size(); ++i) {
    const auto l = static_cast<int64_t>(i);
    op_.select(0, l).fill_(static_cast<int64_t>(epoch.lanes[i].action.op));
    for (int64_t s = 0; s < slots_; ++s)
      if (const auto& points = epoch.lanes[i].slots[static_cast<size_t>(s)].measured.contribution_points)
        kept[l][s] = static_cast<float>(*points);
  }
  accuracy_before_.copy_(signs_.lanes.select(1, static_cast<int64_t>(LaneSign::kValidationAccuracy)));
  states_before_.copy_(signs_.states);
  epochs_ += 1;
}

}  // namespace espalier::train
