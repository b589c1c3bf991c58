#include "espalier/train/policy_signs.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>

#include <cstddef>
#include <limits>

#include "espalier/train/step_metrics.h"

namespace espalier::train {
namespace {

constexpr double kUnmeasured = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLossSum = 0, kHits = 1, kSamples = 2;  // of a pass of Evaluation

// [...,3,L] -> [...,L]
at::Tensor mean_of(const at::Tensor& passes, int64_t which) {
  return passes.select(-2, which) / passes.select(-2, kSamples).clamp_min(1);
}

// [L,S] bool: seeds that a pass without them says something about.
at::Tensor is_felt(const at::Tensor& states) {
  static_assert(offsetof(SlotState, stage) == 0 && offsetof(SlotState, amplitude) % sizeof(float) == 0);
  const at::Tensor stage = states.select(2, 0);
  const at::Tensor amplitude =
      states.view(at::kFloat).select(2, offsetof(SlotState, amplitude) / sizeof(float));
  return stage.ge(static_cast<int64_t>(SeedStage::kGerminated))
      .logical_and(stage.le(static_cast<int64_t>(SeedStage::kFossilized)))
      .logical_and(amplitude.gt(0));
}

// [L,S] bool: as tells_norm() says.
at::Tensor has_told_norm(const EpochSigns& epoch) {
  const at::Tensor stage = epoch.states.select(2, 0);
  if (epoch.telemetry == Telemetry::kAll) return at::ones_like(stage, at::kBool);
  return stage.eq(static_cast<int64_t>(SeedStage::kTraining))
      .logical_or(stage.eq(static_cast<int64_t>(SeedStage::kHolding)));
}

}  // namespace

void fill_signs(const EpochSigns& epoch, double parameter_budget, const policy::LaneSigns& signs) {
  using policy::LaneSign;
  using policy::SlotSign;
  const auto row = [&](int64_t which) { return epoch.trained.select(0, which); };  // [L]
  const auto put = [](const at::Tensor& to, auto which, const at::Tensor& values) {
    to.select(-1, static_cast<int64_t>(which)).copy_(values);
  };
  const auto batches = static_cast<double>(epoch.num_batches);
  const at::Tensor samples = row(StepMetrics::kValid).clamp_min(1);
  const at::Tensor whole = epoch.validated.select(0, 0);  // [3,L]
  const at::Tensor accuracy = mean_of(whole, kHits);
  put(signs.lanes, LaneSign::kTrainLoss, row(StepMetrics::kLoss) / samples);
  put(signs.lanes, LaneSign::kTrainAccuracy, row(StepMetrics::kCorrect) / samples);
  put(signs.lanes, LaneSign::kValidationLoss, mean_of(whole, kLossSum));
  put(signs.lanes, LaneSign::kValidationAccuracy, accuracy);
  put(signs.lanes, LaneSign::kGradientNorm, row(StepMetrics::kNorm) / batches);
  put(signs.lanes, LaneSign::kAddedParameters, epoch.added_parameters);
  put(signs.lanes, LaneSign::kBudgetUsed, epoch.added_parameters / parameter_budget);

  const int64_t slots = epoch.states.size(1);
  const at::Tensor norms = epoch.trained.narrow(0, StepMetrics::kFirstSlot, slots).t() / batches;  // [L,S]
  const at::Tensor is_told = norms.ne(0).logical_and(has_told_norm(epoch));
  put(signs.slots, SlotSign::kGradientNorm, at::where(is_told, norms, kUnmeasured));
  const at::Tensor without = epoch.validated.narrow(0, 1, slots);  // [S,3,L]
  const at::Tensor points = ((accuracy - mean_of(without, kHits)) * 100).t();
  const at::Tensor was_measured = without.select(1, kSamples).t().gt(0).logical_and(is_felt(epoch.states));
  put(signs.slots, SlotSign::kContributionPoints, at::where(was_measured, points, kUnmeasured));
  signs.states.copy_(epoch.states);
}

at::Tensor lost_in(const EpochSigns& epoch) {
  const at::Tensor loss = epoch.validated.select(0, 0).select(0, kLossSum);
  return epoch.trained.select(0, StepMetrics::kNonFinite).gt(0).logical_or(at::isfinite(loss).logical_not());
}

}  // namespace espalier::train
