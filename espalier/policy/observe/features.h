// The arithmetic of observations, shared by the CPU and a kernel: where every feature is, and how it is made.
// docs/observation.md says the same in words.
//
// Kept true: the order of readings and features is part of saved policies and never changes.
#pragma once

#include <cmath>
#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/policy/packed_states.h"

namespace espalier::policy {

// What is measured of a lane in a step.
enum class LaneReading : uint8_t {
  kTrainLoss = 0,
  kTrainAccuracy = 1,  // in [0,1], as all accuracies
  kValidationLoss = 2,
  kValidationAccuracy = 3,
  kGradientNorm = 4,     // the host's, mean over the epoch's batches
  kAddedParameters = 5,  // by seeds, over the host's
  kBudgetUsed = 6,       // added parameters over those that may be added
};
inline constexpr int kNumLaneReadings = 7;

// What is measured of a seed. NaN: not in this step.
enum class SlotReading : uint8_t {
  kGradientNorm = 0,
  kContributionPoints = 1,  // validation accuracy with the seed minus without, in points
};
inline constexpr int kNumSlotReadings = 2;

enum class LaneFeature : uint8_t {
  kProgress = 0,
  kTrainLoss = 1,
  kValidationLoss = 2,
  kTrainAccuracy = 3,
  kValidationAccuracy = 4,
  kTrainLossChange = 5,
  kValidationLossChange = 6,
  kTrainAccuracyChange = 7,
  kValidationAccuracyChange = 8,
  kBestAccuracy = 9,
  kBelowBest = 10,
  kPlateau = 11,
  kGradientNorm = 12,
  kAddedParameters = 13,
  kBudgetUsed = 14,
  kSeedsHeld = 15,
  kSeedsPlanted = 16,
  kFirstOp = 17,  // one for each SeedOp
};
inline constexpr int kNumLaneFeatures = 17 + kNumSeedOps;

enum class SlotFeature : uint8_t {
  kFirstStage = 0,  // one for each SeedStage
  kAmplitude = 9,
  kTarget = 10,
  kFirstOperator = 11,  // one for each BlendOperator
  kRamping = 14,
  kRemoving = 15,
  kRampDone = 16,
  kAge = 17,
  kStepsInStage = 18,
  kSeedsPlanted = 19,
  kGradientNorm = 20,
  kGradientShare = 21,
  kGradientHealth = 22,
  kContribution = 23,
  kContributionAge = 24,
};
inline constexpr int kNumSlotFeatures = 25;
static_assert(kNumSeedStages == 9 && kNumBlendOperators == 3);

// Features of the lane, then of slot after slot.
ESPALIER_HOST_DEVICE constexpr int64_t num_features(int64_t slots) {
  return kNumLaneFeatures + slots * kNumSlotFeatures;
}

// What is remembered of a lane from step to step.
enum class LaneMemory : uint8_t {
  kTrainLoss = 0,
  kValidationLoss = 1,
  kTrainAccuracy = 2,
  kValidationAccuracy = 3,
  kBestAccuracy = 4,
  kPlateauAccuracy = 5,  // what accuracy has to rise above to end the plateau
  kPlateauSteps = 6,
};
inline constexpr int kNumLaneMemory = 7;

// Where a value that cannot be negative was not measured.
inline constexpr float kNotMeasured = -1;
// Where a contribution was not measured: below symlog(-100), the worst there is.
inline constexpr float kNoContribution = -5;
// What is larger, or not a number, is taken for this.
inline constexpr float kLargestReading = 1e6f;
// A gradient norm of a thousandth is as usual as one of 1: symlog would make it 0.
inline constexpr float kGradientUnit = 1e-3f;
// A rise of accuracy that ends a plateau: 0.1 points, ten samples of ten thousand.
inline constexpr float kPlateauRise = 1e-3f;

// sign(x) log(1 + |x|) (Hafner et al., arXiv 2301.04104).
ESPALIER_HOST_DEVICE float symlog(float x) {
  return x < 0 ? -log1pf(-x) : log1pf(x);
}

ESPALIER_HOST_DEVICE float within(float x, float least, float most) {
  return x < least ? least : x > most ? most : x;
}

// In [-largest, largest]; NaN as the largest, since what is not a number has grown out of all bounds.
ESPALIER_HOST_DEVICE float bounded(float x) {
  return x == x ? within(x, -kLargestReading, kLargestReading) : kLargestReading;
}

// In [0,1]; NaN as 0.
ESPALIER_HOST_DEVICE float share(float x) {
  return x == x ? within(x, 0, 1) : 0;
}

ESPALIER_HOST_DEVICE float symlog_count(int64_t count) {
  return symlog(within(static_cast<float>(count), 0, kLargestReading));
}

struct ObserveArgs {
  const float* lane_readings = nullptr;  // [L,kNumLaneReadings]
  const float* slot_readings = nullptr;  // [L,S,kNumSlotReadings]
  const uint8_t* states = nullptr;       // [L,S,kSlotStateBytes]
  const int64_t* last_op = nullptr;      // [L], last_op_stride apart
  int64_t last_op_stride = 1;
  const int64_t* step = nullptr;  // [1]
  const bool* clears = nullptr;   // [L]
  int64_t lanes = 0;
  int64_t slots = 0;
  int64_t num_blueprints = 0;
  int64_t episode_length = 0;
  float least_healthy_norm = 0, largest_healthy_norm = 0;
  float* lane_memory = nullptr;     // [L,kNumLaneMemory]
  float* contributions = nullptr;   // [L,S]
  int64_t* measured_ago = nullptr;  // [L,S]
  float* features = nullptr;        // [L,num_features(S)]
  int64_t* blueprints = nullptr;    // [L,S]
  int64_t* stage = nullptr;         // [L,S]
  int64_t* flags = nullptr;         // [L,S]
  int64_t* age_steps = nullptr;     // [L,S]
  int64_t* num_seeds = nullptr;     // [L]
};

ESPALIER_HOST_DEVICE void observe_lane(const ObserveArgs& args, int64_t lane) {
  const float* readings = args.lane_readings + lane * kNumLaneReadings;
  float* memory = args.lane_memory + lane * kNumLaneMemory;
  float* features = args.features + lane * num_features(args.slots);
  const auto reading = [&](LaneReading which) { return readings[static_cast<int>(which)]; };
  const auto remembered = [&](LaneMemory which) -> float& { return memory[static_cast<int>(which)]; };
  const auto put = [&](LaneFeature which, float value) { features[static_cast<int>(which)] = value; };

  const float train_loss = bounded(reading(LaneReading::kTrainLoss));
  const float validation_loss = bounded(reading(LaneReading::kValidationLoss));
  const float train_accuracy = share(reading(LaneReading::kTrainAccuracy));
  const float accuracy = share(reading(LaneReading::kValidationAccuracy));
  if (args.clears[lane]) {
    remembered(LaneMemory::kTrainLoss) = train_loss;
    remembered(LaneMemory::kValidationLoss) = validation_loss;
    remembered(LaneMemory::kTrainAccuracy) = train_accuracy;
    remembered(LaneMemory::kValidationAccuracy) = accuracy;
    remembered(LaneMemory::kBestAccuracy) = accuracy;
    remembered(LaneMemory::kPlateauAccuracy) = accuracy;
    remembered(LaneMemory::kPlateauSteps) = 0;
  } else if (accuracy > remembered(LaneMemory::kPlateauAccuracy) + kPlateauRise) {
    remembered(LaneMemory::kPlateauAccuracy) = accuracy;
    remembered(LaneMemory::kPlateauSteps) = 0;
  } else {
    remembered(LaneMemory::kPlateauSteps) += 1;
  }
  if (accuracy > remembered(LaneMemory::kBestAccuracy)) remembered(LaneMemory::kBestAccuracy) = accuracy;

  const auto points = [](float now, float then) { return symlog(100 * (now - then)); };
  put(LaneFeature::kProgress,
      share(static_cast<float>(*args.step) / static_cast<float>(args.episode_length)));
  put(LaneFeature::kTrainLoss, symlog(train_loss));
  put(LaneFeature::kValidationLoss, symlog(validation_loss));
  put(LaneFeature::kTrainAccuracy, train_accuracy);
  put(LaneFeature::kValidationAccuracy, accuracy);
  put(LaneFeature::kTrainLossChange, symlog(train_loss - remembered(LaneMemory::kTrainLoss)));
  put(LaneFeature::kValidationLossChange, symlog(validation_loss - remembered(LaneMemory::kValidationLoss)));
  put(LaneFeature::kTrainAccuracyChange, points(train_accuracy, remembered(LaneMemory::kTrainAccuracy)));
  put(LaneFeature::kValidationAccuracyChange, points(accuracy, remembered(LaneMemory::kValidationAccuracy)));
  put(LaneFeature::kBestAccuracy, remembered(LaneMemory::kBestAccuracy));
  put(LaneFeature::kBelowBest, points(remembered(LaneMemory::kBestAccuracy), accuracy));
  put(LaneFeature::kPlateau, symlog(remembered(LaneMemory::kPlateauSteps)));
  put(LaneFeature::kGradientNorm, symlog(bounded(reading(LaneReading::kGradientNorm)) / kGradientUnit));
  put(LaneFeature::kAddedParameters, symlog(bounded(reading(LaneReading::kAddedParameters))));
  put(LaneFeature::kBudgetUsed, symlog(bounded(reading(LaneReading::kBudgetUsed))));
  remembered(LaneMemory::kTrainLoss) = train_loss;
  remembered(LaneMemory::kValidationLoss) = validation_loss;
  remembered(LaneMemory::kTrainAccuracy) = train_accuracy;
  remembered(LaneMemory::kValidationAccuracy) = accuracy;

  int64_t held = 0, planted = 0;
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    const SlotState state = slot_state_at(args.states, lane * args.slots + slot);
    held += holds_seed(state.stage);
    planted += state.num_seeds > 0 ? state.num_seeds : 0;
  }
  args.num_seeds[lane] = held;
  put(LaneFeature::kSeedsHeld, static_cast<float>(held) / static_cast<float>(args.slots));
  put(LaneFeature::kSeedsPlanted, symlog_count(planted));
  const int64_t op = args.last_op[lane * args.last_op_stride];
  for (int i = 0; i < kNumSeedOps; ++i)
    features[static_cast<int>(LaneFeature::kFirstOp) + i] = op == i ? 1.0f : 0.0f;
}

ESPALIER_HOST_DEVICE void observe_slot(const ObserveArgs& args, int64_t lane, int64_t slot) {
  const int64_t index = lane * args.slots + slot;
  const SlotState state = slot_state_at(args.states, index);
  float* features =
      args.features + lane * num_features(args.slots) + kNumLaneFeatures + slot * kNumSlotFeatures;
  const auto put = [&](SlotFeature which, float value) { features[static_cast<int>(which)] = value; };
  const bool has_seed = holds_seed(state.stage);

  args.stage[index] = static_cast<int64_t>(state.stage);
  args.flags[index] = state.flags;
  args.age_steps[index] = state.age_steps;
  args.blueprints[index] =
      state.blueprint >= 0 && state.blueprint < args.num_blueprints ? state.blueprint : kNoBlueprint;

  for (int i = 0; i < kNumSeedStages; ++i)
    features[static_cast<int>(SlotFeature::kFirstStage) + i] =
        static_cast<int>(state.stage) == i ? 1.0f : 0.0f;
  put(SlotFeature::kAmplitude, share(state.amplitude));
  put(SlotFeature::kTarget, share(state.target));
  for (int i = 0; i < kNumBlendOperators; ++i)
    features[static_cast<int>(SlotFeature::kFirstOperator) + i] =
        has_seed && static_cast<int>(state.blend_operator) == i ? 1.0f : 0.0f;
  put(SlotFeature::kRamping, is_ramping(state) ? 1.0f : 0.0f);
  put(SlotFeature::kRemoving, is_removing(state) ? 1.0f : 0.0f);
  put(SlotFeature::kRampDone,
      state.ramp_steps > 0 ? share(static_cast<float>(state.ramp_done) / static_cast<float>(state.ramp_steps))
                           : 0.0f);
  put(SlotFeature::kAge, symlog_count(state.age_steps));
  put(SlotFeature::kStepsInStage, symlog_count(state.steps_in_stage));
  put(SlotFeature::kSeedsPlanted, symlog_count(state.num_seeds));

  const float* readings = args.slot_readings + index * kNumSlotReadings;
  const float norm = readings[static_cast<int>(SlotReading::kGradientNorm)];
  const bool has_norm = has_seed && norm == norm;
  const float host =
      bounded(args.lane_readings[lane * kNumLaneReadings + static_cast<int>(LaneReading::kGradientNorm)]);
  const float bounded_norm = within(norm, 0, kLargestReading), both = bounded_norm + (host > 0 ? host : 0);
  put(SlotFeature::kGradientNorm, has_norm ? symlog(bounded_norm / kGradientUnit) : kNotMeasured);
  put(SlotFeature::kGradientShare, has_norm ? (both > 0 ? bounded_norm / both : 0.0f) : kNotMeasured);
  const bool healthy = norm >= args.least_healthy_norm && norm <= args.largest_healthy_norm;
  put(SlotFeature::kGradientHealth, has_norm ? (healthy ? 1.0f : 0.0f) : kNotMeasured);

  const float contribution = readings[static_cast<int>(SlotReading::kContributionPoints)];
  float& last = args.contributions[index];
  int64_t& ago = args.measured_ago[index];
  if (args.clears[lane] || !has_seed) {
    last = NAN;
    ago = 0;
  }
  if (has_seed && contribution == contribution) {
    last = within(contribution, -100, 100);
    ago = 0;
  } else {
    ++ago;
  }
  const bool known = last == last;
  put(SlotFeature::kContribution, known ? symlog(last) : kNoContribution);
  put(SlotFeature::kContributionAge, known ? symlog_count(ago) : kNotMeasured);
}

}  // namespace espalier::policy
