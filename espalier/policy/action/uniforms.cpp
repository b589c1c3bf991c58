#include "espalier/policy/action/uniforms.h"

#include <ATen/ops/empty.h>

#include "espalier/policy/action/choice_random.h"
#include "espalier/policy/check_tensor.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/policy/action/uniforms_kernel.h"
#endif

namespace espalier::policy {

at::Tensor choice_uniforms(uint64_t seed, const at::Tensor& round, const at::Tensor& step, int64_t lanes,
                           int64_t choices) {
  const TensorChecker check("choice_uniforms", step.device());
  check.dense(round, "round", {1}, at::kLong);
  check.dense(step, "step", {1}, at::kLong);
  const at::Tensor uniforms = at::empty({lanes, choices}, step.options().dtype(at::kFloat));
  if (uniforms.numel() == 0) return uniforms;
  const UniformsArgs args{.seed = seed,
                          .round = round.const_data_ptr<int64_t>(),
                          .step = step.const_data_ptr<int64_t>(),
                          .lanes = lanes,
                          .choices = choices,
                          .uniforms = uniforms.mutable_data_ptr<float>()};
#if ESPALIER_WITH_CUDA
  if (step.is_cuda()) {
    const c10::cuda::CUDAGuard guard(step.device());
    C10_CUDA_CHECK(launch_uniforms(args, c10::cuda::getCurrentCUDAStream(step.device().index()).stream()));
    return uniforms;
  }
#endif
  for (int64_t lane = 0; lane < lanes; ++lane)
    for (int64_t choice = 0; choice < choices; ++choice)
      args.uniforms[lane * choices + choice] = choice_uniform(seed, *args.round, *args.step, lane, choice);
  return uniforms;
}

}  // namespace espalier::policy
