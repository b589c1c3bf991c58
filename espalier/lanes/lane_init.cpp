#include "espalier/lanes/lane_init.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numbers>

#include "espalier/core/philox.h"

namespace espalier::lanes {
namespace {

// FNV-1a, 32 bits: fixed for all time, unlike std::hash.
uint32_t name_hash(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return hash;
}

}  // namespace

void init_uniform_(const at::Tensor& stacked, double bound, const InitKey& key) {
  TORCH_CHECK(stacked.dim() >= 1 && stacked.is_floating_point(),
              "init_uniform_: stacked: want [L,...] of floats, got ", stacked.sizes(), " ",
              stacked.scalar_type());
  TORCH_CHECK(key.first_lane >= 0 && key.first_lane + stacked.size(0) <= (int64_t{1} << 32),
              "init_uniform_: first_lane: want 0 to 2^32 - L, got ", key.first_lane);
  const int64_t values = stacked.size(0) == 0 ? 0 : stacked.numel() / stacked.size(0);
  TORCH_CHECK(values <= (int64_t{1} << 34), "init_uniform_: stacked: want at most 2^34 values a lane, got ",
              values);
  const c10::NoGradGuard no_grad;
  const uint32_t name = name_hash(key.parameter);
  const at::Tensor drawn = at::empty({values}, at::kDouble);
  auto* to = drawn.mutable_data_ptr<double>();
  for (int64_t lane = 0; lane < stacked.size(0); ++lane) {
    for (int64_t i = 0; i < values; i += 4) {
      const Words4 words =
          philox4x32(key.seed, static_cast<uint32_t>(i / 4), static_cast<uint32_t>(key.first_lane + lane),
                     name, static_cast<uint32_t>(Purpose::kInitialise));
      // (word + 1/2) / 2^31 - 1: symmetric, never -1 or 1, exact in double.
      for (int64_t j = 0; j < 4 && i + j < values; ++j)
        to[i + j] = bound * ((static_cast<double>(words[static_cast<int>(j)]) + 0.5) * 0x1p-31 - 1);
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
