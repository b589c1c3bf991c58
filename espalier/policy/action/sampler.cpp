#include "espalier/policy/action/sampler.h"

#include <ATen/ATen.h>

#include "espalier/policy/action/categorical.h"

namespace espalier::policy {

ActionSampler::ActionSampler(const ActionSpace& space, const at::Tensor& blueprints)
    : space_(space), blueprints_(blueprints) {
  TORCH_CHECK(blueprints.dim() == 1 && blueprints.size(0) == space.num_blueprints &&
                  blueprints.scalar_type() == at::kBool,
              "ActionSampler: blueprints: want [", space.num_blueprints, "] Bool, got ", blueprints.sizes(),
              " ", blueprints.scalar_type());
  const at::Tensor uses = at::zeros({kNumSeedOps, kNumHeads}, at::kBool);
  for (int op = 0; op < kNumSeedOps; ++op)
    for (int head = 0; head < kNumHeads; ++head)
      uses[op][head] = uses_head(static_cast<SeedOp>(op), static_cast<Head>(head));
  uses_head_ = uses.to(blueprints.device());
  all_allowed_ = at::ones({space.num_choices()}, blueprints.options());
}

at::Tensor ActionSampler::head_part(const at::Tensor& all_heads, Head head) const {
  return all_heads.narrow(-1, space_.offset(head), space_.size(head));
}

at::Tensor ActionSampler::legal(const ChosenMasks& masks, Head head) const {
  if (head == Head::kOp) return masks.op;
  if (head == Head::kSlot) return masks.slot;
  if (head == Head::kBlueprint) return blueprints_;
  return head_part(all_allowed_, head);
}

at::Tensor ActionSampler::relevant(const at::Tensor& op) const {
  std::vector<int64_t> sizes = op.sizes().vec();
  sizes.push_back(kNumHeads);
  return uses_head_.index_select(0, op.flatten()).view(sizes);
}

Decision ActionSampler::decide(const at::Tensor& logits, const ActionMasks& masks, const at::Tensor& uniforms,
                               Choosing choosing) const {
  TORCH_CHECK(logits.dim() == 2 && logits.size(1) == space_.num_choices(), "ActionSampler: logits: want [L,",
              space_.num_choices(), "], got ", logits.sizes());
  TORCH_CHECK(choosing == Choosing::kLikeliest || uniforms.sizes() == logits.sizes(),
              "ActionSampler: uniforms: want ", logits.sizes(), ", got ", uniforms.sizes());
  const int64_t lanes = logits.size(0);
  Decision decision{.masks = {.op = masks.op}};
  std::vector<at::Tensor> actions;
  for (int i = 0; i < kNumHeads; ++i) {
    const auto head = static_cast<Head>(i);
    const at::Tensor scores = head_part(logits, head).detach();
    const at::Tensor allowed = legal(decision.masks, head).expand_as(scores);
    const at::Tensor log_probs = masked_log_probs(scores, allowed);
    actions.push_back(choosing == Choosing::kSample
                          ? sample_choice(log_probs, allowed, head_part(uniforms, head))
                          : likeliest_choice(log_probs, allowed));
    if (head == Head::kOp) {  // the slots are those of the op just chosen
      const at::Tensor op = actions[0].view({lanes, 1, 1}).expand({lanes, 1, space_.num_slots});
      decision.masks.slot = masks.slot.gather(1, op).squeeze(1);
    }
  }
  const at::Tensor chosen = at::stack(actions, 1);
  decision.actions = at::where(relevant(actions[0]), chosen, 0);
  decision.evaluation = evaluate(logits, decision.masks, decision.actions);
  return decision;
}

Evaluation ActionSampler::evaluate(const at::Tensor& logits, const ChosenMasks& masks,
                                   const at::Tensor& actions) const {
  TORCH_CHECK(logits.size(-1) == space_.num_choices(), "ActionSampler: logits: want [...,",
              space_.num_choices(), "], got ", logits.sizes());
  TORCH_CHECK(actions.scalar_type() == at::kLong && actions.size(-1) == kNumHeads &&
                  actions.sizes().slice(0, actions.dim() - 1) == logits.sizes().slice(0, logits.dim() - 1),
              "ActionSampler: actions: want the leading axes of logits and [...,", kNumHeads, "] Long, got ",
              actions.sizes(), " ", actions.scalar_type());
  const std::vector<at::Tensor> choices = actions.unbind(-1);
  std::vector<at::Tensor> log_probs, entropies;
  for (int i = 0; i < kNumHeads; ++i) {
    const auto head = static_cast<Head>(i);
    const at::Tensor scores = head_part(logits, head);
    const at::Tensor allowed = legal(masks, head).expand_as(scores);
    const at::Tensor all = masked_log_probs(scores, allowed);
    log_probs.push_back(all.gather(-1, choices[i].unsqueeze(-1)).squeeze(-1));
    entropies.push_back(normalised_entropy(all, allowed));
  }
  // By selection, so that the log-probability of a choice that was never made does not matter.
  const at::Tensor uses = relevant(choices[0]);
  return {.log_probs = at::where(uses, at::stack(log_probs, -1), 0),
          .entropies = at::where(uses, at::stack(entropies, -1), 0),
          .relevant = uses};
}

}  // namespace espalier::policy
