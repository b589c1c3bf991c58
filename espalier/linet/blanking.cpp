#include "espalier/linet/blanking.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>

#include "espalier/linet/blanking_random.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/linet/blanking_kernel.h"
#endif

namespace espalier::linet {
namespace {

void check_scalar(const at::Tensor& tensor, const char* function, const char* argument) {
  TORCH_CHECK(tensor.numel() == 1 && tensor.scalar_type() == at::kDouble, function, ": ", argument,
              ": want [1] Double, got ", tensor.sizes(), " ", tensor.scalar_type());
}

}  // namespace

at::Tensor blanking_mask(int64_t streams, int64_t batch, uint64_t seed, const at::Tensor& step,
                         const at::Tensor& probability) {
  check_scalar(step, "blanking_mask", "step");
  check_scalar(probability, "blanking_mask", "probability");
  const at::Tensor keep = at::empty({streams, batch}, step.options().dtype(at::kBool));
  if (keep.numel() == 0) return keep;
#if ESPALIER_WITH_CUDA
  if (step.is_cuda()) {
    const c10::cuda::CUDAGuard guard(step.device());
    C10_CUDA_CHECK(launch_blanking({.seed = seed,
                                    .step = step.const_data_ptr<double>(),
                                    .probability = probability.const_data_ptr<double>(),
                                    .streams = static_cast<int32_t>(streams),
                                    .batch = static_cast<int32_t>(batch),
                                    .keep = keep.mutable_data_ptr<bool>()},
                                   c10::cuda::getCurrentCUDAStream(step.device().index()).stream()));
    return keep;
  }
#endif
  const auto now = static_cast<uint32_t>(*step.const_data_ptr<double>());
  const double share = *probability.const_data_ptr<double>();
  auto* to = keep.mutable_data_ptr<bool>();
  for (int64_t stream = 0; stream < streams; ++stream)
    for (int64_t sample = 0; sample < batch; ++sample)
      to[stream * batch + sample] =
          keeps_stream(seed, now, static_cast<uint32_t>(sample), static_cast<uint32_t>(stream),
                       static_cast<uint32_t>(streams), share);
  return keep;
}

at::Tensor dropout_factors(int64_t batch, int64_t features, double probability, uint64_t seed,
                           const at::Tensor& step) {
  check_scalar(step, "dropout_factors", "step");
  TORCH_CHECK(probability >= 0 && probability < 1,
              "dropout_factors: probability: want at least 0 and below 1, got ", probability);
  const at::Tensor factors = at::empty({1, batch, features}, step.options().dtype(at::kFloat));
  if (factors.numel() == 0) return factors;
#if ESPALIER_WITH_CUDA
  if (step.is_cuda()) {
    const c10::cuda::CUDAGuard guard(step.device());
    C10_CUDA_CHECK(launch_dropout({.seed = seed,
                                   .step = step.const_data_ptr<double>(),
                                   .probability = probability,
                                   .count = factors.numel(),
                                   .factors = factors.mutable_data_ptr<float>()},
                                  c10::cuda::getCurrentCUDAStream(step.device().index()).stream()));
    return factors;
  }
#endif
  const auto now = static_cast<uint32_t>(*step.const_data_ptr<double>());
  auto* to = factors.mutable_data_ptr<float>();
  for (int64_t place = 0; place < factors.numel(); ++place)
    to[place] = dropout_factor(seed, now, static_cast<uint32_t>(place), probability);
  return factors;
}

at::Tensor BlankingRamp::at(const at::Tensor& step) const {
  if (ramp_steps == 0) return at::full_like(step, largest);
  return (step * (largest / static_cast<double>(ramp_steps))).clamp_max(largest);
}

}  // namespace espalier::linet
