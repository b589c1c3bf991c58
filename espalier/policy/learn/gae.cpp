#include "espalier/policy/learn/gae.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

namespace espalier::policy {

Gae estimate_advantages(const GaeInput& input, const GaeOptions& options) {
  TORCH_CHECK(input.rewards.dim() == 2, "estimate_advantages: rewards: want [L,T], got ",
              input.rewards.sizes());
  const auto check = [&](const at::Tensor& tensor, const char* name) {
    TORCH_CHECK(tensor.sizes() == input.rewards.sizes(), "estimate_advantages: ", name, ": want ",
                input.rewards.sizes(), ", got ", tensor.sizes());
  };
  check(input.values, "values");
  check(input.ended, "ended");
  check(input.truncated, "truncated");
  check(input.bootstrap, "bootstrap");

  const c10::NoGradGuard no_grad;
  const int64_t lanes = input.rewards.size(0), steps = input.rewards.size(1);
  if (steps == 0) return {.advantages = input.rewards.clone(), .returns = input.rewards.clone()};
  // By selection: what does not count may be anything, NaN too.
  const at::Tensor following = at::cat({input.values.slice(1, 1), input.bootstrap.slice(1, steps - 1)}, 1);
  const at::Tensor next =
      at::where(input.ended, 0, at::where(input.truncated, input.bootstrap, following));  // [L,T]
  const at::Tensor delta = input.rewards + next * options.gamma - input.values;           // [L,T]
  const at::Tensor last = input.ended | input.truncated;                                  // [L,T]
  const at::Tensor advantages = at::empty_like(delta);
  at::Tensor later = at::zeros({lanes}, delta.options());
  for (int64_t t = steps - 1; t >= 0; --t) {
    later = delta.select(1, t) + at::where(last.select(1, t), 0, later) * (options.gamma * options.lambda);
    advantages.select(1, t).copy_(later);
  }
  return {.advantages = advantages, .returns = advantages + input.values};
}

}  // namespace espalier::policy
