#include "espalier/train/memory/policy.h"

#include <algorithm>

#include "espalier/policy/observe/observation.h"
#include "espalier/policy/reward/rule.h"

namespace espalier::train {
namespace {

using policy::kNumHeads;

constexpr int64_t kFloat = 4, kLong = 8;
const int64_t kEmbedding = policy::NetworkOptions{}.embedding_size;

struct Sizes {
  explicit Sizes(const PolicyOptions& options)
      : slots(options.space.num_slots),
        features(policy::num_features(slots)),
        input(features + slots * kEmbedding),
        encoder(options.encoder_size),
        hidden(options.hidden_size),
        choices(options.space.num_choices()) {}

  int64_t slots, features, input, encoder, hidden, choices;
};

int64_t num_parameters(const PolicyOptions& options, const Sizes& of) {
  return (options.space.num_blueprints + 1) * kEmbedding + of.encoder * (of.input + 3) +
         4 * of.hidden * (of.encoder + of.hidden + 1) + of.choices * (of.hidden + 1) + of.hidden + 1;
}

// For one lane and step, as policy::Rollout stores it.
int64_t step_bytes(const Sizes& of) {
  const int64_t floats = of.features + 2 * of.hidden + kNumHeads + 3;  // 3: value, reward, bootstrap
  const int64_t numbers = of.slots + kNumHeads;
  const int64_t flags = kNumSeedOps + of.slots + 4;  // 4: clears, ended, truncated, counts
  return floats * kFloat + numbers * kLong + flags;
}

// For one lane: what an epoch is read into, observation, masks' fields, memory and rewards.
int64_t lane_bytes(const Sizes& of) {
  const int64_t states = 2 * of.slots * policy::kSlotStateBytes;
  const int64_t floats = policy::kNumLaneReadings + of.slots * (policy::kNumSlotReadings + 1) + of.features +
                         policy::kNumLaneMemory + 2 * policy::kNumRewardTerms + 2 * of.hidden + 3;
  const int64_t numbers = 5 * of.slots + 1 + kNumHeads + (kNumHeads + 1);
  return states + floats * kFloat + numbers * kLong + 8;
}

// What is in flight of one lane and step at the peak of an update, in floats: the encoder's input and two
// results; from the LSTM the gates' activations, cell and hidden state with their products, and some of their
// gradients; from the heads several of everything: logits, masks, log-probabilities, entropies. The
// numbers are those of PolicyMemory.PlansAnUpdateWithinAFewPercent.
int64_t values_of_update(const Sizes& of) {
  return of.input + 2 * of.encoder + 21 * of.hidden / 2 + 10 * of.choices;
}

// What Adam makes of one parameter before it is written, as multiples of it.
constexpr int64_t kAdamResults = 9;

int64_t largest_parameter(const Sizes& of) {
  return std::max(of.encoder * of.input, 4 * of.hidden * std::max(of.encoder, of.hidden));
}

}  // namespace

MemoryPlan policy_parts(const PolicyOptions& options, PolicyUse use) {
  const Sizes of(options);
  const int64_t parameters = num_parameters(options, of), steps = options.episode_length - 1;
  MemoryPlan plan;
  plan.add("policy: weights and moments", 3 * parameters * kFloat);
  plan.add("policy: rollout", options.lanes * steps * step_bytes(of) + kLong);
  plan.add("policy: observations and rewards", options.lanes * lane_bytes(of));
  const int64_t lanes = (options.lanes + options.ppo.num_minibatches - 1) / options.ppo.num_minibatches;
  // All gradients, and either what they come from or what Adam makes of the largest.
  const int64_t update =
      (parameters + std::max(lanes * steps * values_of_update(of), kAdamResults * largest_parameter(of))) *
      kFloat;
  const int64_t acting = options.lanes * values_of_update(of) * kFloat;
  const int64_t in_flight = use == PolicyUse::kLearns ? update : acting;
  // Acting at the beginning, in the middle and at the end, and the update. Its tensors are many and small:
  // blocks fit each other.
  plan.add(step_parts("the policy", {.device = options.device,
                                     .peak_bytes = in_flight,
                                     .graph_bytes = in_flight,
                                     .graphs = options.graphs == Graphs::kOn,
                                     .num_graphs = use == PolicyUse::kLearns ? 4 : 3,
                                     .has_convolutions = false,
                                     .has_products = true}));
  return plan;
}

}  // namespace espalier::train
