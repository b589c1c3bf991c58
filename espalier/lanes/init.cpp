#include "espalier/lanes/init.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numbers>

#include "espalier/core/random/philox.h"
#include "espalier/lanes/uniform_value.h"
#if ESPALIER_WITH_CUDA
#include "espalier/lanes/init_kernel.h"
#include "espalier/lanes/launch.h"
#endif

namespace espalier::lanes {
namespace {

// FNV-1a, 32 bits: fixed for all time, unlike std::hash.
uint32_t name_hash(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return hash;
}

#if ESPALIER_WITH_CUDA
bool takes_init_kernel(const at::Tensor& stacked) {
  return stacked.is_cuda() && stacked.dim() <= 1 + kMostInitAxes &&
         (stacked.scalar_type() == at::kFloat || stacked.scalar_type() == at::kDouble);
}

void init_uniform_by_kernel(const at::Tensor& stacked, double bound, const InitKey& key) {
  InitUniformArgs args{.data = stacked.mutable_data_ptr(),
                       .is_double = stacked.scalar_type() == at::kDouble,
                       .lanes = stacked.size(0),
                       .lane_stride = stacked.stride(0),
                       .values = stacked.numel() / stacked.size(0),
                       .num_axes = static_cast<int32_t>(stacked.dim() - 1),
                       .bound = bound,
                       .seed = key.seed,
                       .first_lane = static_cast<uint32_t>(key.first_lane),
                       .name = name_hash(key.parameter)};
  for (int axis = 0; axis < args.num_axes; ++axis) {
    args.sizes[axis] = stacked.size(axis + 1);
    args.strides[axis] = stacked.stride(axis + 1);
  }
  const c10::cuda::CUDAGuard guard(stacked.device());
  C10_CUDA_CHECK(launch_init_uniform(args, stream_of(stacked)));
}
#endif

}  // namespace

void init_uniform_(const at::Tensor& stacked, double bound, const InitKey& key) {
  TORCH_CHECK(stacked.dim() >= 1 && stacked.is_floating_point(),
              "init_uniform_: stacked: want [L,...] of floats, got ", stacked.sizes(), " ",
              stacked.scalar_type());
  TORCH_CHECK(key.first_lane >= 0 && key.first_lane + stacked.size(0) <= (int64_t{1} << 32),
              "init_uniform_: first_lane: want 0 to 2^32 - L, got ", key.first_lane);
  const int64_t values = stacked.size(0) == 0 ? 0 : stacked.numel() / stacked.size(0);
  TORCH_CHECK(values <= (int64_t{1} << 34), "init_uniform_: stacked: want at most 2^34 values per lane, got ",
              values);
  const c10::NoGradGuard no_grad;
  if (stacked.numel() == 0) return;
#if ESPALIER_WITH_CUDA
  if (takes_init_kernel(stacked)) return init_uniform_by_kernel(stacked, bound, key);
#endif
  const uint32_t name = name_hash(key.parameter);
  const at::Tensor drawn = at::empty({values}, at::kDouble);
  auto* to = drawn.mutable_data_ptr<double>();
  for (int64_t lane = 0; lane < stacked.size(0); ++lane) {
    for (int64_t i = 0; i < values; i += 4) {
      const Words4 words =
          philox4x32(key.seed, static_cast<uint32_t>(i / 4), static_cast<uint32_t>(key.first_lane + lane),
                     name, static_cast<uint32_t>(Purpose::kInitialise));
      for (int64_t j = 0; j < 4 && i + j < values; ++j)
        to[i + j] = uniform_value(words[static_cast<int>(j)], bound);
    }
    stacked.select(0, lane).copy_(drawn.view(stacked.sizes().slice(1)));
  }
}

double kaiming_bound(const at::Tensor& weight) {
  TORCH_CHECK(weight.dim() >= 3, "kaiming_bound: weight: want [L,K,C,k,k] or [L,O,I], got ", weight.sizes());
  const int64_t fan_in = c10::multiply_integers(weight.sizes().slice(2));
  return fan_in == 0 ? 0 : 1 / std::sqrt(static_cast<double>(fan_in));
}

void init_kaiming_uniform_(const at::Tensor& weight, const InitKey& key) {
  init_uniform_(weight, kaiming_bound(weight), key);
}

void init_orthogonal_(const at::Tensor& weight, const InitKey& key) {
  TORCH_CHECK(weight.dim() >= 3 && weight.size(1) * weight.size(1) * weight.size(0) == weight.numel(),
              "init_orthogonal_: weight: want [L,K,K] or [L,K,K,1,1], got ", weight.sizes());
  const c10::NoGradGuard no_grad;
  const int64_t lanes = weight.size(0), size = weight.size(1);
  const at::Tensor uniform = at::empty({lanes, 2, size, size}, at::kDouble);
  init_uniform_(uniform, 1, key);
  for (int64_t lane = 0; lane < lanes; ++lane) {
    // Box and Muller: two uniform numbers make a normal one.
    const at::Tensor share = (uniform.select(0, lane) + 1) / 2;
    const at::Tensor normal = (share[0].log() * -2).sqrt() * (share[1] * (2 * std::numbers::pi)).cos();
    const auto [q, r] = at::linalg_qr(normal);
    weight.select(0, lane).copy_((q * r.diagonal().sign()).view(weight.sizes().slice(1)));
  }
}

}  // namespace espalier::lanes
