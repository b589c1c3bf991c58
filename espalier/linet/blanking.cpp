#include "espalier/linet/blanking.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>

#include <algorithm>
#include <cmath>

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

at::Tensor blanking_mask(const BlankingShape& shape, uint64_t seed, const at::Tensor& step,
                         const at::Tensor& probability) {
  check_scalar(step, "blanking_mask", "step");
  check_scalar(probability, "blanking_mask", "probability");
  const auto [rules, streams, batch] = shape;
  TORCH_CHECK(rules != LinetRules::kOriginal || streams >= 2,
              "blanking_mask: streams: want at least 2 by the original's rules, got ", streams,
              "; a sample of one stream would have none left");
  const at::Tensor keep = at::empty({streams, batch}, step.options().dtype(at::kBool));
  if (keep.numel() == 0) return keep;
#if ESPALIER_WITH_CUDA
  if (step.is_cuda()) {
    const c10::cuda::CUDAGuard guard(step.device());
    C10_CUDA_CHECK(launch_blanking({.rules = rules,
                                    .seed = seed,
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
          keeps_stream(rules, seed, now, static_cast<uint32_t>(sample), static_cast<uint32_t>(stream),
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

at::Tensor BlankingRamp::at(const at::Tensor& step, LinetRules rules) const {
  if (rules == LinetRules::kOriginal) {
    // By tensors: on CUDA torch divides by a number by multiplying with its reciprocal, and the 49th of 49
    // steps would be in the epoch before.
    const auto divided = [](const at::Tensor& value, double by) { return value / at::full_like(value, by); };
    const at::Tensor epoch = divided(step, static_cast<double>(steps_per_epoch)).floor();
    // 1 in the start epoch, and below it at most 0. A ramp of at most one epoch is none.
    const at::Tensor into_ramp = epoch - static_cast<double>(start_epoch - 1);
    return divided(into_ramp, std::max(ramp_epochs, 1.0)).clamp(0, 1) * largest;
  }
  const int64_t ramp_steps = std::llround(ramp_epochs * static_cast<double>(steps_per_epoch));
  if (ramp_steps == 0) return at::full_like(step, largest);
  return (step * (largest / static_cast<double>(ramp_steps))).clamp_max(largest);
}

}  // namespace espalier::linet
