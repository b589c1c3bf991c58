// The arithmetic of rewards, shared by the CPU and a kernel. docs/ppo.md has the tables.
//
// Kept true: the order of the terms is part of logs and never changes; the potential is 0 where an episode
// ends, so that shaping adds up to minus the first potential whatever a policy does (Ng, Harada and Russell,
// ICML 1999).
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/policy/observation_features.h"
#include "espalier/policy/packed_states.h"

namespace espalier::policy {

enum class RewardTerm : uint8_t {
  kAccuracy = 0,   // change of validation accuracy, in points
  kRent = 1,       // for added parameters
  kOp = 2,         // for any op but WAIT
  kPotential = 3,  // gamma phi(next) - phi(now)
  kEnd = 4,        // for where the lane ended up
  kFailure = 5,    // for a lane that was lost
};
inline constexpr int kNumRewardTerms = 6;
inline constexpr const char* kRewardTermNames[kNumRewardTerms] = {"accuracy",  "rent", "op",
                                                                  "potential", "end",  "failure"};

enum class RewardMode : uint8_t {
  kShaped = 0,
  kSparse = 1,  // the end and failure alone
};

inline constexpr float kRentPerStep = 0.01f;  // times added over host parameters
inline constexpr float kOpCost = 0.01f;
inline constexpr float kEndAccuracy = 3;  // times accuracy in [0,1]
inline constexpr float kEndSeed = 2;      // for each fossilised seed with a positive contribution
inline constexpr float kFailurePenalty = 1;

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
  const float* lane_signs = nullptr;     // [L,kNumLaneSigns], after
  const float* slot_signs = nullptr;     // [L,S,kNumSlotSigns], after
  const float* contributions = nullptr;  // [L,S]
  const int64_t* op = nullptr;           // [L], op_stride apart
  int64_t op_stride = 1;
  const uint8_t* states_before = nullptr;  // [L,S,kSlotStateBytes]
  const uint8_t* states_after = nullptr;   // [L,S,kSlotStateBytes]
  const bool* is_last = nullptr;           // [1]
  const bool* failed = nullptr;            // [L]
  const bool* frozen = nullptr;            // [L]
  int64_t lanes = 0;
  int64_t slots = 0;
  RewardMode mode = RewardMode::kShaped;
  float gamma = 1;
  float* reward = nullptr;  // [L]
  float* terms = nullptr;   // [L,kNumRewardTerms]
  bool* ended = nullptr;    // [L]
  bool* counts = nullptr;   // [L]
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
        args.slot_signs[index * kNumSlotSigns + static_cast<int>(SlotSign::kContributionPoints)];
    const float contribution = now == now ? now : args.contributions[index];
    good += slot_state_at(args.states_after, index).stage == SeedStage::kFossilized && contribution > 0;
  }
  return good;
}

ESPALIER_HOST_DEVICE void reward_lane(const RewardArgs& args, int64_t lane) {
  float* terms = args.terms + lane * kNumRewardTerms;
  for (int i = 0; i < kNumRewardTerms; ++i) terms[i] = 0;
  const auto put = [&](RewardTerm which, float value) { terms[static_cast<int>(which)] = value; };
  const auto sign = [&](LaneSign which) {
    return args.lane_signs[lane * kNumLaneSigns + static_cast<int>(which)];
  };
  const bool counts = !args.frozen[lane], failed = args.failed[lane], is_last = *args.is_last;
  args.counts[lane] = counts;
  args.ended[lane] = is_last || failed || !counts;
  if (counts && args.mode == RewardMode::kShaped) {
    const float before = lane_potential(args.states_before, lane, args.slots);
    const float after = is_last || failed ? 0 : lane_potential(args.states_after, lane, args.slots);
    put(RewardTerm::kPotential, args.gamma * after - before);
    if (args.op[lane * args.op_stride] != static_cast<int64_t>(SeedOp::kWait)) put(RewardTerm::kOp, -kOpCost);
    if (!failed) {  // what a lost lane measured means nothing
      put(RewardTerm::kAccuracy, 100 * (sign(LaneSign::kValidationAccuracy) -
                                        args.accuracy_before[lane * args.accuracy_before_stride]));
      put(RewardTerm::kRent, -kRentPerStep * sign(LaneSign::kAddedParameters));
    }
  }
  if (counts && failed) put(RewardTerm::kFailure, -kFailurePenalty);
  if (counts && is_last && !failed)
    put(RewardTerm::kEnd, kEndAccuracy * sign(LaneSign::kValidationAccuracy) +
                              kEndSeed * static_cast<float>(num_good_seeds(args, lane)));
  float sum = 0;
  for (int i = 0; i < kNumRewardTerms; ++i) sum += terms[i];
  args.reward[lane] = sum;
}

}  // namespace espalier::policy
