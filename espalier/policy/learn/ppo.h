// Proximal policy optimisation (Schulman et al., arXiv 1707.06347) of a recurrent policy with eight heads.
//
// Kept true: an update transfers nothing and never waits: whether it goes on is decided on the device, where
// a stopped update leaves parameters and moments as they were; a step that does not count, and a head that
// its op did not use, enter no sum; all diagnostics come out as one tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <vector>

#include "espalier/policy/action/sampler.h"
#include "espalier/policy/learn/adam.h"
#include "espalier/policy/learn/gae.h"
#include "espalier/policy/learn/rollout.h"
#include "espalier/policy/learn/value_normalizer.h"
#include "espalier/policy/network.h"

namespace espalier::policy {

struct PpoOptions {
  GaeOptions gae;
  AdamOptions adam;
  double clip = 0.2;        // how far the ratio may go, head by head
  double value_clip = 0.2;  // in units of the value normaliser
  double value_coefficient = 0.5;
  // Weights of the normalised entropies, head by head: in the first round, and in the last. The op's is
  // larger: most of what a policy tries first is worse than WAIT, and one that only waits learns nothing
  // more.
  std::array<double, kNumHeads> entropy_first{0.1, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01, 0.01};
  std::array<double, kNumHeads> entropy_last{0.005, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001, 0.001};
  double max_gradient_norm = 0.5;
  double target_kl = 0.02;  // an update stops for good at the first minibatch beyond it
  int64_t num_epochs = 4;
  int64_t num_minibatches = 1;
  int64_t sequence_length = 0;  // K: divides the round's steps; 0: all of them
};

enum class Diagnostic {
  kPolicyLoss,
  kValueLoss,
  kEntropy,
  kOldApproxKl,
  kApproxKl,
  kClipFrac,
  kExplainedVariance,
  kGradientNorm,
  kNumUpdates,
};
inline constexpr int kNumDiagnostics = 9;
inline constexpr std::array<const char*, kNumDiagnostics> kDiagnosticNames{
    "policy_loss", "value_loss",         "entropy",       "old_approx_kl", "approx_kl",
    "clipfrac",    "explained_variance", "gradient_norm", "updates"};

// What is told about each head, over the steps that count and whose op used it.
enum class HeadDiagnostic {
  kEntropy,   // normalised
  kRatio,     // mean of the new over the old probability of what was chosen
  kClipFrac,  // share of ratios that are clipped
  kApproxKl,  // mean of (ratio - 1) - logratio
};
inline constexpr int kNumHeadDiagnostics = 4;
inline constexpr std::array<const char*, kNumHeadDiagnostics> kHeadDiagnosticNames{"entropy", "ratio",
                                                                                   "clipfrac", "approx_kl"};
// What an update tells: Diagnostic, then for each HeadDiagnostic all heads.
inline constexpr int kNumUpdateValues = kNumDiagnostics + kNumHeadDiagnostics * kNumHeads;
constexpr int index_of(HeadDiagnostic which, Head head) {
  return kNumDiagnostics + static_cast<int>(which) * kNumHeads + index_of(head);
}

// (x - mean) / deviation over what counts, in f64; unchanged where fewer than two count, since one number has
// no deviation. advantages, counts: [L,T]. 0 where it does not count.
at::Tensor normalise_advantages(const at::Tensor& advantages, const at::Tensor& counts);

// 1 - variance of (returns - values) / variance of returns, over what counts; 0 where returns do not vary.
at::Tensor explained_variance(const at::Tensor& values, const at::Tensor& returns, const at::Tensor& counts);

// N sequences of K steps.
struct PpoBatch {
  Observation seen;          // [N,K,...]
  RecurrentState start;      // [N,H]: the stored state before each sequence
  at::Tensor clears;         // [N,K] bool
  at::Tensor actions;        // [N,K,8] i64
  ChosenMasks masks;         // [N,K,...] bool
  at::Tensor old_log_probs;  // [N,K,8] f32
  at::Tensor old_values;     // [N,K] f32, in units of the value normaliser, as returns
  at::Tensor returns;        // [N,K] f32
  at::Tensor advantages;     // [N,K] f32, normalised
  at::Tensor counts;         // [N,K] bool
};

struct PpoLoss {
  at::Tensor total;          // [] policy_loss - entropy bonus + value_coefficient * value_loss
  at::Tensor policy_loss;    // [] mean over steps of the sum over heads of -min(ratio A, clipped ratio A)
  at::Tensor value_loss;     // [] mean of half the larger squared error, of the value and the clipped value
  at::Tensor entropy;        // [] mean normalised entropy of the heads that were used
  at::Tensor old_approx_kl;  // [] mean of -logratio of the whole action
  at::Tensor approx_kl;      // [] mean of (ratio - 1) - logratio (Schulman, "Approximating KL divergence")
  at::Tensor clip_frac;      // [] share of the heads that were used whose ratio is clipped
  at::Tensor head_uses;      // [8] f32: steps that count and used the head
  at::Tensor head_sums;      // [kNumHeadDiagnostics,8] f32: over these, what HeadDiagnostic is the mean of
};

// evaluation and value: of the batch's actions, by the policy as it is now. entropy_weights: [8] f32.
PpoLoss ppo_loss(const Evaluation& evaluation, const at::Tensor& value, const PpoBatch& batch,
                 const at::Tensor& entropy_weights, const PpoOptions& options);

class Ppo {
 public:
  // The network and the sampler have to outlive it.
  Ppo(const PolicyNetwork& network, const ActionSampler& sampler, const PpoOptions& options);

  // How far the run is, from 0 to 1: entropy weights go from first to last along it.
  void set_progress(double progress);

  // Learns from a whole round. Returns [kNumUpdateValues] f32. By the numbers of Diagnostic: means over the
  // minibatches up to the one that stopped the update; the two KLs of the last of these; how much variance
  // the round's own values explain. By index_of(HeadDiagnostic, Head): means over the choices in these
  // minibatches, the KL over those of the last; NaN where no step used the head.
  at::Tensor update(const Rollout& rollout);

  const ValueNormalizer& values() const { return values_; }
  std::vector<NamedTensor> state() const;  // what a checkpoint holds besides the network

 private:
  PpoBatch sequences_of(const Rollout& rollout, const Gae& gae) const;

  const PolicyNetwork& network_;
  const ActionSampler& sampler_;
  PpoOptions options_;
  ValueNormalizer values_;
  Adam adam_;
  at::Tensor entropy_first_;  // [8] f32
  at::Tensor entropy_last_;   // [8] f32
  at::Tensor progress_;       // [] f32
};

}  // namespace espalier::policy
