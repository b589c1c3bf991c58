#include "espalier/policy/reward/account.h"

#include <ATen/ops/full.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <limits>

namespace espalier::policy {
namespace {

constexpr double kUnmeasured = std::numeric_limits<double>::quiet_NaN();

}  // namespace

RewardAccount::RewardAccount(const std::string& rule, const RewardFrame& frame, Losing losing)
    : reward_(rule, frame), losing_(losing) {
  const at::TensorOptions floats = at::TensorOptions(frame.device).dtype(at::kFloat);
  accuracy_before_ = at::zeros({frame.lanes}, floats);
  states_before_ = at::zeros({frame.lanes, frame.slots, kSlotStateBytes}, floats.dtype(at::kByte));
  contributions_ = at::full({frame.lanes, frame.slots}, kUnmeasured, floats);
  lost_ = at::zeros({frame.lanes}, floats.dtype(at::kBool));
  frozen_ = at::zeros({frame.lanes}, floats.dtype(at::kBool));
  is_last_ = at::zeros({1}, floats.dtype(at::kBool));
}

void RewardAccount::begin() {
  reward_.begin();
  accuracy_before_.zero_();
  states_before_.zero_();
  contributions_.fill_(kUnmeasured);
  lost_.zero_();
  frozen_.zero_();
}

void RewardAccount::add(const RawObservation& epoch, const at::Tensor& op, const at::Tensor& lost,
                        EpisodePart part, const at::Tensor& retired) {
  if (losing_ == Losing::kGoesOn) {
    lost_.copy_(lost.logical_and(retired.logical_not()));
    frozen_.copy_(retired);
  } else {
    lost_.logical_or_(lost);
  }
  if (part != EpisodePart::kFirst) {
    is_last_.fill_(part == EpisodePart::kLast);
    reward_.compute({.accuracy_before = accuracy_before_,
                     .states_before = states_before_,
                     .after = epoch,
                     .contributions = contributions_,
                     .op = op,
                     .is_last = is_last_,
                     .failed = lost_,
                     .frozen = frozen_,
                     .goes_on = losing_ == Losing::kGoesOn});
  }
  // One that its first epoch lost is frozen once the decision after it is accounted for.
  if (part != EpisodePart::kFirst || losing_ == Losing::kGoesOn) frozen_.logical_or_(lost_);
  remember(epoch);
  // What it goes back to from there is how the episode began.
  if (part == EpisodePart::kFirst) states_before_.copy_(epoch.states);
}

void RewardAccount::begin_accuracy(const at::Tensor& is_first, const at::Tensor& accuracy) {
  accuracy_before_.copy_(at::where(is_first, accuracy, accuracy_before_));
}

// A lane that goes back is as it was before: the epoch left no trace.
at::Tensor RewardAccount::unless_lost(const at::Tensor& now, const at::Tensor& before) const {
  if (losing_ == Losing::kEndsEpisode) return now;
  std::vector<int64_t> per_lane(static_cast<size_t>(now.dim()), 1);
  per_lane.front() = -1;
  return at::where(lost_.view(per_lane), before, now);
}

void RewardAccount::remember(const RawObservation& epoch) {
  accuracy_before_.copy_(unless_lost(
      epoch.lanes.select(1, static_cast<int64_t>(LaneReading::kValidationAccuracy)), accuracy_before_));
  states_before_.copy_(unless_lost(epoch.states, states_before_));
  const at::Tensor now = epoch.slots.select(2, static_cast<int64_t>(SlotReading::kContributionPoints));
  const at::Tensor last = at::where(at::isnan(now), contributions_, now);
  contributions_.copy_(unless_lost(at::where(holds_seed(epoch.states), last, kUnmeasured), contributions_));
}

std::vector<NamedTensor> RewardAccount::state() const {
  std::vector<NamedTensor> state = reward_.state();
  for (NamedTensor each : std::initializer_list<NamedTensor>{{"accuracy_before", accuracy_before_},
                                                             {"states_before", states_before_},
                                                             {"contributions", contributions_},
                                                             {"lost", lost_},
                                                             {"frozen", frozen_}})
    state.push_back(std::move(each));
  return state;
}

}  // namespace espalier::policy
