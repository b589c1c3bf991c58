// Flags of a policy: what it is and how it learns, and what decisions are worth.
#pragma once

#include <string_view>

#include "espalier/core/options.h"
#include "espalier/train/control/ppo_config.h"

namespace espalier::cli {

template <class Visitor>
void visit_policy(Visitor&& visitor, train::PolicyConfig& policy) {
  auto v = in_group(visitor, "Policy");
  v({.name = "encoder-size", .help = "width of the policy's encoder", .low = 1, .high = 1 << 16},
    policy.encoder_size);
  v({.name = "hidden-size", .help = "width of the policy's LSTM", .low = 1, .high = 1 << 16},
    policy.hidden_size);
  v({.name = "gamma", .help = "discount of a step", .low = 0, .high = 1}, policy.gamma);
  v({.name = "gae-lambda", .help = "lambda of generalised advantage estimation", .low = 0, .high = 1},
    policy.gae_lambda);
  v({.name = "policy-rate", .help = "learning rate of the policy (Adam)", .low = 0, .high = 1},
    policy.policy_rate);
  v({.name = "clip-ratio",
     .help = "range around 1 that PPO clips every head's ratio to",
     .low = 0,
     .high = 1},
    policy.clip_ratio);
  v({.name = "op-entropy",
     .help = "weight of the op's entropy in the first round: with too little, the policy soon only waits",
     .low = 0,
     .high = 10},
    policy.op_entropy_first);
  v({.name = "op-entropy-last",
     .help = "weight of the op's entropy in the last round; it moves linearly in between",
     .low = 0,
     .high = 10},
    policy.op_entropy_last);
  v({.name = "entropy",
     .help = "weight of every other head's entropy in the first round",
     .low = 0,
     .high = 10},
    policy.entropy_first);
  v({.name = "entropy-last",
     .help = "weight of every other head's entropy in the last round",
     .low = 0,
     .high = 10},
    policy.entropy_last);
  v({.name = "target-kl",
     .help = "approximate KL divergence at which an update ends early",
     .low = 0,
     .high = 1e9},
    policy.target_kl);
  v({.name = "update-epochs", .help = "passes over the round per update", .low = 1, .high = 1000},
    policy.update_epochs);
  v({.name = "minibatches",
     .help = "parts that a round's lanes are cut into, with one step of Adam for each",
     .low = 1,
     .high = 4096},
    policy.minibatches);
}

// "shaped: every step by ...; sparse: ...", from the registry of rewards.
std::string_view reward_help();

// What decisions are worth, whoever makes them.
template <class Visitor>
void visit_reward(Visitor&& visitor, policy::RewardConfig& reward) {
  auto v = in_group(visitor, "Reward");
  policy::RewardWeights& weights = reward.weights;
  constexpr double kMost = 1e6;
  v({.name = "reward", .help = reward_help(), .choices = policy::rewards().names()}, reward.rule);
  v({.name = "reward-accuracy",
     .help = "shaped: reward for each point of validation accuracy gained",
     .low = 0,
     .high = kMost},
    weights.accuracy);
  v({.name = "reward-potential",
     .help = "shaped: weight of what a seed's stages are worth on its way",
     .low = 0,
     .high = kMost},
    weights.potential);
  v({.name = "reward-rent",
     .help = "not sparse: a step's cost of added parameters, as a share of the host's",
     .low = 0,
     .high = kMost},
    weights.rent);
  v({.name = "reward-op", .help = "not sparse: the cost of any op but WAIT", .low = 0, .high = kMost},
    weights.op);
  v({.name = "reward-contribution",
     .help = "contribution: reward in every step for each point that a seed contributes",
     .low = 0,
     .high = kMost},
    weights.contribution);
  v({.name = "reward-escrow",
     .help = "escrow: reward for each point of contribution that lasts",
     .low = 0,
     .high = kMost},
    weights.escrow);
  v({.name = "reward-end-accuracy",
     .help = "at the end: weight of validation accuracy, taken from 0 to 1",
     .low = 0,
     .high = kMost},
    weights.end_accuracy);
  v({.name = "reward-end-seed",
     .help = "at the end: reward for each kept seed that contributes",
     .low = 0,
     .high = kMost},
    weights.end_seed);
  v({.name = "reward-failure", .help = "the cost of a network that is lost", .low = 0, .high = kMost},
    weights.failure);
}

}  // namespace espalier::cli
