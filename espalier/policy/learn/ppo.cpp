#include "espalier/policy/learn/ppo.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

namespace espalier::policy {
namespace {

// Mean of x where it counts, by selection: what does not count may be NaN. Both of one shape.
at::Tensor mean_where(const at::Tensor& counts, const at::Tensor& x) {
  return at::where(counts, x, 0).sum() / counts.sum().clamp_min(1);
}

at::Tensor head_weights(const std::array<double, kNumHeads>& weights, const at::TensorOptions& options) {
  return at::tensor(at::ArrayRef<double>(weights), at::kDouble).to(options);
}

// [L,T,...] -> [L*T/K,K,...]: a lane's steps cut into sequences, without a copy.
at::Tensor cut(const at::Tensor& steps, int64_t length) {
  std::vector<int64_t> sizes = steps.sizes().vec();
  sizes[0] = sizes[0] * sizes[1] / length;
  sizes[1] = length;
  return steps.view(sizes);
}

// Every num-th sequence from the first on: views.
PpoBatch every(const PpoBatch& all, int64_t first, int64_t num) {
  const auto part = [&](const at::Tensor& x) { return x.slice(0, first, x.size(0), num); };
  return {.seen = {part(all.seen.features), part(all.seen.blueprints)},
          .start = {part(all.start.hidden), part(all.start.cell)},
          .clears = part(all.clears),
          .actions = part(all.actions),
          .masks = {part(all.masks.op), part(all.masks.slot)},
          .old_log_probs = part(all.old_log_probs),
          .old_values = part(all.old_values),
          .returns = part(all.returns),
          .advantages = part(all.advantages),
          .counts = part(all.counts)};
}

}  // namespace

at::Tensor normalise_advantages(const at::Tensor& advantages, const at::Tensor& counts) {
  const at::Tensor x = at::where(counts, advantages, 0).to(at::kDouble);
  const at::Tensor number = counts.sum();
  const at::Tensor centred = at::where(counts, x - mean_where(counts, x), 0);
  const at::Tensor deviation = (centred.square().sum() / number.clamp_min(1)).sqrt();
  return at::where(number.gt(1), centred / (deviation + 1e-8), x).to(advantages.scalar_type());
}

at::Tensor explained_variance(const at::Tensor& values, const at::Tensor& returns, const at::Tensor& counts) {
  const auto variance = [&](const at::Tensor& x) {
    const at::Tensor wide = x.to(at::kDouble);
    return mean_where(counts, (wide - mean_where(counts, wide)).square());
  };
  const at::Tensor whole = variance(returns);
  return at::where(whole.gt(0), 1 - variance(returns - values) / whole, 0).to(returns.scalar_type());
}

PpoLoss ppo_loss(const Evaluation& evaluation, const at::Tensor& value, const PpoBatch& batch,
                 const at::Tensor& entropy_weights, const PpoOptions& options) {
  PpoLoss loss;
  // Selected before anything is multiplied: a NaN that does not count would still spoil the gradient.
  const auto counting = [&](const at::Tensor& x) { return at::where(batch.counts, x, 0); };
  const at::Tensor used = evaluation.relevant & batch.counts.unsqueeze(-1);  // [N,K,8]
  const at::Tensor steps = batch.counts.sum().clamp_min(1);

  // Head by head, summed: the gradient of the whole action's log-probability, and a head that is seldom used
  // weighs as seldom.
  const at::Tensor logratio = at::where(used, evaluation.log_probs - batch.old_log_probs, 0);  // [N,K,8]
  const at::Tensor ratio = logratio.exp();
  const at::Tensor advantage = counting(batch.advantages).unsqueeze(-1);
  const at::Tensor clipped = ratio.clamp(1 - options.clip, 1 + options.clip);
  const at::Tensor surrogate = at::minimum(ratio * advantage, clipped * advantage);
  loss.policy_loss = at::where(used, surrogate, 0).sum().neg() / steps;

  const at::Tensor now = counting(value), old = counting(batch.old_values);  // [N,K]
  const at::Tensor goal = counting(batch.returns);
  const at::Tensor near = old + (now - old).clamp(-options.value_clip, options.value_clip);
  const at::Tensor error = at::maximum((now - goal).square(), (near - goal).square()) / 2;
  loss.value_loss = mean_where(batch.counts, error);

  const at::Tensor entropies = at::where(used, evaluation.entropies, 0);
  const at::Tensor bonus = (entropies * entropy_weights).sum() / steps;
  loss.total = loss.policy_loss - bonus + loss.value_loss * options.value_coefficient;

  const at::Tensor num_used = used.sum().clamp_min(1);
  const at::Tensor whole = logratio.detach().sum(-1);  // [N,K]: of the whole action
  loss.entropy = entropies.detach().sum() / num_used;
  loss.old_approx_kl = mean_where(batch.counts, whole.neg());
  loss.approx_kl = mean_where(batch.counts, whole.exp() - 1 - whole);
  const at::Tensor is_clipped = (ratio.detach() - 1).abs().gt(options.clip) & used;
  loss.clip_frac = is_clipped.sum() / num_used;
  const auto over_steps = [&](const at::Tensor& x) {  // [N,K,8] -> [8]
    return x.detach().flatten(0, -2).sum(0).to(ratio.scalar_type());
  };
  loss.head_uses = over_steps(used);
  loss.head_sums = at::stack({over_steps(entropies), over_steps(at::where(used, ratio, 0)),
                              over_steps(is_clipped), over_steps(at::where(used, ratio - 1 - logratio, 0))});
  return loss;
}

Ppo::Ppo(const PolicyNetwork& network, const ActionSampler& sampler, const PpoOptions& options)
    : network_(network),
      sampler_(sampler),
      options_(options),
      values_(network.options().tensors),
      adam_(network.parameters(), options.adam) {
  TORCH_CHECK(options.num_epochs >= 1 && options.num_minibatches >= 1 && options.sequence_length >= 0,
              "Ppo: num_epochs, num_minibatches, sequence_length: want 1, 1 and 0 or more, got ",
              options.num_epochs, ", ", options.num_minibatches, ", ", options.sequence_length);
  entropy_first_ = head_weights(options.entropy_first, network.options().tensors);
  entropy_last_ = head_weights(options.entropy_last, network.options().tensors);
  progress_ = at::zeros({}, network.options().tensors);
}

void Ppo::set_progress(double progress) {
  TORCH_CHECK(progress >= 0 && progress <= 1, "Ppo: progress: want 0 to 1, got ", progress);
  progress_.fill_(progress);
}

PpoBatch Ppo::sequences_of(const Rollout& rollout, const Gae& gae) const {
  const int64_t length = options_.sequence_length == 0 ? rollout.steps() : options_.sequence_length;
  TORCH_CHECK(rollout.steps() % length == 0, "Ppo: sequence_length: want a divisor of the round's ",
              rollout.steps(), " steps, got ", length);
  TORCH_CHECK(options_.num_minibatches <= rollout.lanes() * rollout.steps() / length,
              "Ppo: num_minibatches: want at most one per sequence, of which there are ",
              rollout.lanes() * rollout.steps() / length, ", got ", options_.num_minibatches);
  const auto sequences = [&](const at::Tensor& steps) { return cut(steps, length); };
  return {.seen = {sequences(rollout.seen.features), sequences(rollout.seen.blueprints)},
          .start = {sequences(rollout.state.hidden).select(1, 0), sequences(rollout.state.cell).select(1, 0)},
          .clears = sequences(rollout.clears),
          .actions = sequences(rollout.actions),
          .masks = {sequences(rollout.masks.op), sequences(rollout.masks.slot)},
          .old_log_probs = sequences(rollout.log_probs),
          .old_values = sequences(values_.normalise(rollout.values)),
          .returns = sequences(values_.normalise(gae.returns)),
          .advantages = sequences(normalise_advantages(gae.advantages, rollout.counts)),
          .counts = sequences(rollout.counts)};
}

at::Tensor Ppo::update(const Rollout& rollout) {
  const Gae gae = estimate_advantages({.rewards = rollout.rewards,
                                       .values = rollout.values,
                                       .ended = rollout.ended,
                                       .truncated = rollout.truncated,
                                       .bootstrap = rollout.bootstrap},
                                      options_.gae);
  values_.update(gae.returns, rollout.counts, network_);
  const PpoBatch all = sequences_of(rollout, gae);
  const at::Tensor entropy_weights = entropy_first_ + (entropy_last_ - entropy_first_) * progress_;
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& parameter : network_.parameters()) parameters.push_back(parameter.tensor);

  const at::TensorOptions options = network_.options().tensors;
  at::Tensor running = at::ones({}, options.dtype(at::kBool));
  at::Tensor sums = at::zeros({5}, options);  // policy loss, value loss, entropy, clip_frac, gradient norm
  at::Tensor kls = at::zeros({2}, options);   // old_approx_kl, approx_kl
  at::Tensor counted = at::zeros({}, options), applied = at::zeros({}, options);
  at::Tensor head_sums = at::zeros({kNumHeadDiagnostics, kNumHeads}, options);
  at::Tensor head_uses = at::zeros({kNumHeads}, options), head_kls = at::zeros({kNumHeads}, options);
  for (int64_t epoch = 0; epoch < options_.num_epochs; ++epoch) {
    for (int64_t i = 0; i < options_.num_minibatches; ++i) {
      // Another one first in every epoch, so that none always has the last word.
      const PpoBatch batch = every(all, (i + epoch) % options_.num_minibatches, options_.num_minibatches);
      const NetworkOutput out = network_.sequence(batch.seen, batch.start, batch.clears);
      const PpoLoss loss = ppo_loss(sampler_.evaluate(out.logits, batch.masks, batch.actions), out.value,
                                    batch, entropy_weights, options_);
      const std::vector<at::Tensor> gradients = torch::autograd::grad({loss.total}, parameters);
      const at::Tensor norm = clip_gradients_(gradients, options_.max_gradient_norm);

      const c10::NoGradGuard no_grad;
      const at::Tensor measured = running;
      running = running & loss.approx_kl.le(options_.target_kl);  // NaN stops too
      adam_.step(gradients, running);
      sums = sums + at::where(measured,
                              at::stack({loss.policy_loss, loss.value_loss, loss.entropy,
                                         loss.clip_frac.to(norm.scalar_type()), norm}),
                              0);
      kls = at::where(measured, at::stack({loss.old_approx_kl, loss.approx_kl}), kls);
      head_sums = head_sums + at::where(measured, loss.head_sums, 0);
      head_uses = head_uses + at::where(measured, loss.head_uses, 0);
      head_kls = at::where(measured,
                           loss.head_sums[static_cast<int64_t>(HeadDiagnostic::kApproxKl)] / loss.head_uses,
                           head_kls);
      counted = counted + measured;
      applied = applied + running;
    }
  }
  const std::vector<at::Tensor> means = (sums / counted).unbind();
  const at::Tensor explained = explained_variance(rollout.values, gae.returns, rollout.counts);
  const at::Tensor whole =
      at::stack({means[0], means[1], means[2], kls[0], kls[1], means[3], explained, means[4], applied});
  const at::Tensor heads = head_sums / head_uses;
  heads.select(0, static_cast<int64_t>(HeadDiagnostic::kApproxKl)).copy_(head_kls);
  return at::cat({whole.to(at::kFloat), heads.flatten().to(at::kFloat)});
}

std::vector<NamedTensor> Ppo::state() const {
  std::vector<NamedTensor> state = adam_.state();
  for (NamedTensor& named : values_.state()) state.push_back(std::move(named));
  state.push_back({"ppo.progress", progress_});
  return state;
}

}  // namespace espalier::policy
