// From logits to actions: the op first, the slot given the op, then the rest; and the log-probabilities of
// actions that were taken before.
//
// Kept true: sampling and evaluating compute log-probabilities by the same calls, so what was sampled
// evaluates to the numbers it was sampled with; a head that the op does not use has choice, log-probability
// and entropy 0.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/policy/action/masks.h"
#include "espalier/policy/action/space.h"

namespace espalier::policy {

enum class Choosing { kSample, kLikeliest };

// What has to be stored to evaluate an action again.
struct ChosenMasks {
  at::Tensor op;    // [...,6] bool
  at::Tensor slot;  // [...,S] bool: the slots that the chosen op might name
};

struct Evaluation {
  at::Tensor log_probs;  // [...,8] f32
  at::Tensor entropies;  // [...,8] f32, each in [0,1]
  at::Tensor relevant;   // [...,8] bool: uses_head()
};

struct Decision {
  at::Tensor actions;  // [L,8] i64, one index per head
  ChosenMasks masks;
  Evaluation evaluation;
};

class ActionSampler {
 public:
  // blueprints: [num_blueprints] bool, those that may be germinated (MaskRules::blueprints()); everything
  // runs on its device.
  ActionSampler(const ActionSpace& space, const at::Tensor& blueprints);

  // logits, uniforms: [L,A], A = space.num_choices(); uniforms in [0,1), not read for kLikeliest.
  Decision decide(const at::Tensor& logits, const ActionMasks& masks, const at::Tensor& uniforms,
                  Choosing choosing) const;

  // logits: [...,A]; actions: [...,8] i64. Differentiable in the logits.
  Evaluation evaluate(const at::Tensor& logits, const ChosenMasks& masks, const at::Tensor& actions) const;

  const ActionSpace& space() const { return space_; }

 private:
  at::Tensor head_part(const at::Tensor& all_heads, Head head) const;  // [...,A] -> the head's part
  at::Tensor legal(const ChosenMasks& masks, Head head) const;         // bool, broadcasts
  at::Tensor relevant(const at::Tensor& op) const;                     // [...] i64 -> [...,8] bool

  ActionSpace space_;
  at::Tensor blueprints_;   // [num_blueprints] bool
  at::Tensor uses_head_;    // [6,8] bool: the table of space.h
  at::Tensor all_allowed_;  // [num_choices] bool, true
};

}  // namespace espalier::policy
