// The arithmetic of the rewards that come with the library, shared by the CPU and a kernel. docs/ppo.md has
// the tables.
//
// Kept true: the order of the terms never changes; the potential is 0 where an episode
// ends, so that shaping adds up to minus the first potential whatever a policy does (Ng, Harada and Russell,
// ICML 1999).
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/policy/observe/features.h"
#include "espalier/policy/packed_states.h"

namespace espalier::policy {

enum class RewardTerm : uint8_t {
  kAccuracy = 0,      // change of validation accuracy, in points
  kRent = 1,          // for added parameters
  kOp = 2,            // for any op but WAIT
  kPotential = 3,     // gamma phi(next) - phi(now)
  kEnd = 4,           // for where the lane ended up
  kFailure = 5,       // for a lane that was lost
  kContribution = 6,  // for what seeds were measured to contribute
  kEscrow = 7,        // what was paid for contributions that did not last, taken back
};
inline constexpr int kNumRewardTerms = 8;
inline constexpr const char* kRewardTermNames[kNumRewardTerms] = {
    "accuracy", "rent", "op", "potential", "end", "failure", "contribution", "escrow"};

enum class RewardMode : uint8_t {
  kShaped = 0,        // every step by what it changed, and the end
  kSparse = 1,        // the end and failure alone
  kContribution = 2,  // every seed by what it contributes, step by step
  kEscrow = 3,        // the same, paid as it rises and taken back as it falls or goes
};

// Terms that the mode may pay, always the first ones of RewardTerm: the others are no columns of its own.
ESPALIER_HOST_DEVICE constexpr int num_terms(RewardMode mode) {
  switch (mode) {
    case RewardMode::kShaped:
    case RewardMode::kSparse:
      return 6;
    case RewardMode::kContribution:
      return 7;
    case RewardMode::kEscrow:
      return 8;
  }
  return kNumRewardTerms;
}

// What the terms are multiplied with.
struct RewardWeights {
  double accuracy = 1;        // per point gained
  double rent = 0.01;         // per step, times added over host parameters
  double op = 0.01;           // per op
  double potential = 1;       // times the table of stages
  double end_accuracy = 3;    // times accuracy in [0,1]
  double end_seed = 2;        // for each fossilised seed with a positive contribution
  double failure = 1;         // for a lane that was lost
  double contribution = 0.1;  // per step and point that a seed contributes
  double escrow = 1;          // per point of contribution that lasts
};

// phi of one slot; a lane's is the sum.
ESPALIER_HOST_DEVICE float potential_of(const SlotState& state) {
  if (is_removing(state)) return 0;  // on its way out
  switch (state.stage) {
    case SeedStage::kGerminated:
      return 0.1f;
    case SeedStage::kTraining:
      return 0.2f;
    case SeedStage::kBlending:
      return 0.4f;
    case SeedStage::kHolding:
      return 0.6f;
    case SeedStage::kFossilized:
      return 1.0f;
    case SeedStage::kDormant:
    case SeedStage::kPruned:
    case SeedStage::kEmbargoed:
    case SeedStage::kResetting:
      return 0;
  }
  return 0;
}

struct RewardArgs {
  const float* accuracy_before = nullptr;  // [L], accuracy_before_stride apart
  int64_t accuracy_before_stride = 1;
  const float* lane_readings = nullptr;  // [L,kNumLaneReadings], after
  const float* slot_readings = nullptr;  // [L,S,kNumSlotReadings], after
  const float* contributions = nullptr;  // [L,S]
  const int64_t* op = nullptr;           // [L], op_stride apart
  int64_t op_stride = 1;
  const uint8_t* states_before = nullptr;  // [L,S,kSlotStateBytes]
  const uint8_t* states_after = nullptr;   // [L,S,kSlotStateBytes]
  const bool* is_last = nullptr;           // [1]
  const bool* failed = nullptr;            // [L]
  const bool* frozen = nullptr;            // [L]
  bool goes_on = false;                    // a lane that failed is as it was before, and so are its seeds
  int64_t lanes = 0;
  int64_t slots = 0;
  RewardMode mode = RewardMode::kShaped;
  RewardWeights weights;
  float gamma = 1;
  float* credit =
      nullptr;             // [L,S] points that each seed is credited with; modes that pay contributions alone
  float* terms = nullptr;  // [L,num_terms(mode)]
};

ESPALIER_HOST_DEVICE float lane_potential(const uint8_t* states, int64_t lane, int64_t slots) {
  float sum = 0;
  for (int64_t slot = 0; slot < slots; ++slot)
    sum += potential_of(slot_state_at(states, lane * slots + slot));
  return sum;
}

// Fossilised seeds whose contribution, the last that was measured, is positive.
ESPALIER_HOST_DEVICE int64_t num_good_seeds(const RewardArgs& args, int64_t lane) {
  int64_t good = 0;
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    const int64_t index = lane * args.slots + slot;
    const float now =
        args.slot_readings[index * kNumSlotReadings + static_cast<int>(SlotReading::kContributionPoints)];
    const float contribution = now == now ? now : args.contributions[index];
    good += slot_state_at(args.states_after, index).stage == SeedStage::kFossilized && contribution > 0;
  }
  return good;
}

// Brings a seed's credit up to date: the last contribution that was measured while it was undecided. Later
// ones are not asked for its own sake: whether they come depends on other lanes. Returns how much it changed.
ESPALIER_HOST_DEVICE float update_credit(const RewardArgs& args, int64_t index, bool failed) {
  const SlotState state = slot_state_at(args.states_after, index);
  const float now =
      args.slot_readings[index * kNumSlotReadings + static_cast<int>(SlotReading::kContributionPoints)];
  float& credit = args.credit[index];
  const float before = credit;
  if (failed || !holds_seed(state.stage)) {
    credit = 0;
  } else if (state.stage != SeedStage::kFossilized && now == now) {
    credit = args.mode == RewardMode::kEscrow && now < 0 ? 0 : now;
  }
  return credit - before;
}

// The two terms of modes that pay contributions.
ESPALIER_HOST_DEVICE void pay_contributions(const RewardArgs& args, int64_t lane, bool failed, float* terms) {
  if (failed && args.goes_on) return;  // credits stay, as the seeds do
  float credited = 0, risen = 0, fallen = 0;
  for (int64_t slot = 0; slot < args.slots; ++slot) {
    const float change = update_credit(args, lane * args.slots + slot, failed);
    credited += args.credit[lane * args.slots + slot];
    (change > 0 ? risen : fallen) += change;
  }
  if (args.mode == RewardMode::kContribution) {
    terms[static_cast<int>(RewardTerm::kContribution)] =
        static_cast<float>(args.weights.contribution) * credited;
  } else {
    terms[static_cast<int>(RewardTerm::kContribution)] = static_cast<float>(args.weights.escrow) * risen;
    terms[static_cast<int>(RewardTerm::kEscrow)] = static_cast<float>(args.weights.escrow) * fallen;
  }
}

ESPALIER_HOST_DEVICE void reward_lane(const RewardArgs& args, int64_t lane) {
  const int num = num_terms(args.mode);
  float* terms = args.terms + lane * num;
  for (int i = 0; i < num; ++i) terms[i] = 0;
  if (args.frozen[lane]) return;
  const RewardWeights& weights = args.weights;
  const auto put = [&](RewardTerm which, float value) { terms[static_cast<int>(which)] = value; };
  const auto reading = [&](LaneReading which) {
    return args.lane_readings[lane * kNumLaneReadings + static_cast<int>(which)];
  };
  const bool failed = args.failed[lane], is_last = *args.is_last;
  if (args.mode == RewardMode::kShaped) {
    const float before = lane_potential(args.states_before, lane, args.slots);
    const uint8_t* const states = failed && args.goes_on ? args.states_before : args.states_after;
    const bool is_over = is_last || (failed && !args.goes_on);
    const float after = is_over ? 0 : lane_potential(states, lane, args.slots);
    put(RewardTerm::kPotential, static_cast<float>(weights.potential) * (args.gamma * after - before));
    if (!failed)  // what a lost lane measured means nothing
      put(RewardTerm::kAccuracy, static_cast<float>(weights.accuracy) *
                                     (100 * (reading(LaneReading::kValidationAccuracy) -
                                             args.accuracy_before[lane * args.accuracy_before_stride])));
  }
  if (args.mode != RewardMode::kSparse) {
    if (args.op[lane * args.op_stride] != static_cast<int64_t>(SeedOp::kWait))
      put(RewardTerm::kOp, -static_cast<float>(weights.op));
    if (!failed)
      put(RewardTerm::kRent, -static_cast<float>(weights.rent) * reading(LaneReading::kAddedParameters));
  }
  if (args.credit != nullptr) pay_contributions(args, lane, failed, terms);
  if (failed) put(RewardTerm::kFailure, -static_cast<float>(weights.failure));
  if (is_last && !failed)
    put(RewardTerm::kEnd,
        static_cast<float>(weights.end_accuracy) * reading(LaneReading::kValidationAccuracy) +
            static_cast<float>(weights.end_seed) * static_cast<float>(num_good_seeds(args, lane)));
}

}  // namespace espalier::policy
