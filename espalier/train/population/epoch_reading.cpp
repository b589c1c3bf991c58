#include "espalier/train/population/epoch_reading.h"

#include <ATen/ops/isfinite.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "espalier/run/archive.h"
#include "espalier/train/step/metrics.h"

namespace espalier::train {
namespace {

using policy::EpisodePart;
using policy::LaneReading;
using policy::SlotReading;

constexpr double kUnmeasured = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kLossSum = 0, kHits = 1, kSamples = 2;  // rows of a pass of Evaluation

// Rows of one lane: first its readings, in their order, so that they are copied as one; then the others; then
// kNumSlotRows times those of all slots; then the terms of the reward.
enum Row : int64_t {
  kLargestNorm = policy::kNumLaneReadings,
  kNonFinite,
  kSkipped,
  kScale,
  kVerdict,
  kCounts,
  kFirstSlotRow,
};
constexpr int64_t kFiniteSlot = policy::kNumSlotReadings, kNumSlotRows = kFiniteSlot + 1;

int64_t first_term(int64_t slots) {
  return kFirstSlotRow + kNumSlotRows * slots;
}

// [...,3,L] -> [...,L]
at::Tensor mean_of(const at::Tensor& passes, int64_t which) {
  return passes.select(-2, which) / passes.select(-2, kSamples).clamp_min(1);
}

// [L,S] bool: seeds that have trained.
at::Tensor has_trained(const at::Tensor& states) {
  return policy::holds_seed(states).logical_and(
      states.select(2, 0).ne(static_cast<int64_t>(SeedStage::kGerminated)));
}

// [L,S] bool: seeds whose gradient norms are told.
at::Tensor is_told(const at::Tensor& states, Telemetry telemetry) {
  const at::Tensor trained = has_trained(states), stage = states.select(2, 0);
  if (telemetry == Telemetry::kAll) return trained;
  return trained.logical_and(stage.eq(static_cast<int64_t>(SeedStage::kTraining))
                                 .logical_or(stage.eq(static_cast<int64_t>(SeedStage::kHolding))));
}

policy::RewardFrame frame_of(const ReadingConfig& config, const ReadingOptions& options) {
  return {.lanes = options.lanes,
          .slots = options.slots,
          .weights = config.reward.weights,
          .gamma = config.gamma,
          .device = options.device};
}

}  // namespace

EpochReading::EpochReading(const ReadingConfig& config, const ReadingOptions& options)
    : config_(config),
      options_(options),
      account_(config.reward.rule, frame_of(config, options), options.losing),
      governor_(options.governor, options.guessing, options.lanes, options.device),
      observed_(policy::empty_raw_observation(
          {.lanes = options.lanes, .space = {.num_slots = options.slots}, .device = options.device})),
      rows_(at::zeros({first_term(options.slots) + std::ssize(term_names()), options.lanes},
                      at::TensorOptions(at::kDouble).device(options.device))),
      graphs_({.device = options.device, .graphs = options.graphs}) {}

void EpochReading::begin_episode() {
  account_.begin();
  governor_.begin();
}

EpochReadings EpochReading::read(const EpochSums& sums, int64_t epoch) {
  const EpisodePart part = epoch == 0                             ? EpisodePart::kFirst
                           : epoch + 1 >= options_.episode_length ? EpisodePart::kLast
                                                                  : EpisodePart::kMiddle;
  graphs_.run(fmt::format("read {} {} {}", static_cast<int>(part), static_cast<int>(sums.telemetry),
                          static_cast<int>(sums.is_validated)),
              [&] { body(sums, part); });
  return {.observed = observed_, .account = account_, .epoch = epoch, .part = part};
}

void EpochReading::body(const EpochSums& sums, EpisodePart part) {
  const c10::NoGradGuard no_grad;
  const at::Tensor loss = sums.validated.select(0, 0).select(0, kLossSum);
  const at::Tensor not_finite =
      sums.trained.select(0, StepMetrics::kNonFinite).gt(0).logical_or(at::isfinite(loss).logical_not());
  read_lanes(sums);
  read_slots(sums, not_finite);
  const auto row = [&](LaneReading which) { return rows_.select(0, static_cast<int64_t>(which)); };
  const at::Tensor is_first = governor_.num_validated().eq(0);  // [L]: nothing was measured that counts
  Governor::Epoch judged{.train_loss = row(LaneReading::kTrainLoss), .not_finite = not_finite};
  if (sums.is_validated) {
    judged.validation_loss = row(LaneReading::kValidationLoss);
    judged.validation_accuracy = row(LaneReading::kValidationAccuracy);
  }
  const at::Tensor verdict = governor_.judge(judged);
  rows_.select(0, kVerdict).copy_(verdict);
  observed_.lanes.copy_(rows_.narrow(0, 0, policy::kNumLaneReadings).t());
  if (!sums.is_validated) {
    observed(LaneReading::kValidationLoss).copy_(governor_.validation_loss());
    observed(LaneReading::kValidationAccuracy).copy_(governor_.validation_accuracy());
  }
  for (int64_t which = 0; which < policy::kNumSlotReadings; ++which)
    observed_.slots.select(2, which).copy_(slot_rows(which).t());
  observed_.states.copy_(sums.states);
  account_.begin_accuracy(is_first, observed(LaneReading::kValidationAccuracy));
  account_.add(observed_, sums.op, Governor::has_collapsed(verdict), part, sums.retired);
  rows_.select(0, kCounts).copy_(account_.reward().counts());
  rows_.slice(0, first_term(options_.slots)).copy_(account_.reward().terms().t());
}

void EpochReading::read_lanes(const EpochSums& sums) {
  const auto sum = [&](int64_t which) { return sums.trained.select(0, which); };  // [L]
  const auto put = [&](auto which, const at::Tensor& values) {
    rows_.select(0, static_cast<int64_t>(which)).copy_(values);
  };
  const at::Tensor samples = sum(StepMetrics::kValid).clamp_min(1);
  put(LaneReading::kTrainLoss, sum(StepMetrics::kLoss) / samples);
  put(LaneReading::kTrainAccuracy, sum(StepMetrics::kCorrect) / samples);
  if (sums.is_validated) {
    const at::Tensor whole = sums.validated.select(0, 0);  // [3,L]
    put(LaneReading::kValidationLoss, mean_of(whole, kLossSum));
    put(LaneReading::kValidationAccuracy, mean_of(whole, kHits));
  } else {
    const at::Tensor is_known = governor_.num_validated().gt(0);
    put(LaneReading::kValidationLoss, at::where(is_known, governor_.validation_loss(), kUnmeasured));
    put(LaneReading::kValidationAccuracy, at::where(is_known, governor_.validation_accuracy(), kUnmeasured));
  }
  put(LaneReading::kGradientNorm, sum(StepMetrics::kNorm) / sums.num_batches);
  put(LaneReading::kAddedParameters, sums.added_parameters);
  put(LaneReading::kBudgetUsed, sums.added_parameters / config_.parameter_budget);
  put(kLargestNorm, sum(StepMetrics::kLargestNorm));
  put(kNonFinite, sum(StepMetrics::kNonFinite));
  put(kSkipped, sum(StepMetrics::kSkipped));
  put(kScale, sum(StepMetrics::kScale));
}

void EpochReading::read_slots(const EpochSums& sums, const at::Tensor& not_finite) {
  const int64_t slots = options_.slots;
  const at::Tensor told = is_told(sums.states, sums.telemetry).t();  // [S,L]
  // What is not told must not depend on whether another lane's gate asked for it.
  const at::Tensor norms =
      at::where(told, sums.trained.narrow(0, StepMetrics::kFirstSlot, slots) / sums.num_batches, 0);  // [S,L]
  // A seed without parameters has no gradients to measure.
  slot_rows(static_cast<int64_t>(SlotReading::kGradientNorm))
      .copy_(at::where(norms.ne(0), norms, kUnmeasured));
  slot_rows(kFiniteSlot)
      .copy_(at::isfinite(norms)
                 .logical_and(not_finite.logical_not())
                 .logical_or(has_trained(sums.states).t().logical_not()));

  const at::Tensor without = sums.validated.narrow(0, 1, slots);  // [S,3,L]
  const at::Tensor accuracy = rows_.select(0, static_cast<int64_t>(LaneReading::kValidationAccuracy));
  const at::Tensor was_measured =
      without.select(1, kSamples).gt(0).logical_and(policy::is_undecided(sums.states).t());  // [S,L]
  slot_rows(static_cast<int64_t>(SlotReading::kContributionPoints))
      .copy_(at::where(was_measured, (accuracy - mean_of(without, kHits)) * 100, kUnmeasured));
}

at::Tensor EpochReading::observed(LaneReading which) const {
  return observed_.lanes.select(1, static_cast<int64_t>(which));
}

at::Tensor EpochReading::slot_rows(int64_t which) const {
  return rows_.narrow(0, kFirstSlotRow + which * options_.slots, options_.slots);
}

LaneReadings EpochReading::decode(std::span<const double> column) const {
  const auto value = [&](auto which) { return column[static_cast<size_t>(which)]; };
  LaneReadings lane{.trained = {.loss = value(LaneReading::kTrainLoss),
                                .accuracy = value(LaneReading::kTrainAccuracy),
                                .gradient_norm = value(LaneReading::kGradientNorm),
                                .largest_norm = value(kLargestNorm),
                                .non_finite = static_cast<int64_t>(value(kNonFinite)),
                                .skipped = static_cast<int64_t>(value(kSkipped)),
                                .loss_scale = value(kScale)},
                    .validated = {.loss = value(LaneReading::kValidationLoss),
                                  .accuracy = value(LaneReading::kValidationAccuracy)},
                    .verdict = static_cast<Verdict>(value(kVerdict))};
  for (int64_t slot = 0; slot < options_.slots; ++slot) {
    const auto reading = [&](auto which) {
      return value(kFirstSlotRow + static_cast<int64_t>(which) * options_.slots + slot);
    };
    lane.slots.push_back({.gradient_norm = reading(SlotReading::kGradientNorm),
                          .contribution_points = reading(SlotReading::kContributionPoints),
                          .is_finite = reading(kFiniteSlot) != 0});
  }
  lane.reward.counts = value(kCounts) != 0;
  const std::span<const double> terms = column.subspan(static_cast<size_t>(first_term(options_.slots)));
  lane.reward.terms.assign(terms.begin(), terms.end());
  return lane;
}

void EpochReading::visit_state(run::StateArchive& archive) {
  for (const NamedTensor& named : account_.state()) archive.tensor(named.name, named.tensor);
  for (const NamedTensor& named : governor_.state()) archive.tensor(named.name, named.tensor);
}

}  // namespace espalier::train
