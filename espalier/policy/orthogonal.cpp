#include "espalier/policy/orthogonal.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <cmath>
#include <numbers>

#include "espalier/core/random/philox.h"

namespace espalier::policy {
namespace {

// FNV-1a, 32 bits: fixed for all time, unlike std::hash.
uint32_t name_hash(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char letter : name) hash = (hash ^ static_cast<unsigned char>(letter)) * 16777619u;
  return hash;
}

// (word + 1/2) / 2^32: never 0 or 1, exact in double.
double share(uint32_t word) {
  return (static_cast<double>(word) + 0.5) * 0x1p-32;
}

// [count] f64 on the CPU, by Box and Muller: two words make a normal number.
at::Tensor normal_numbers(int64_t count, uint64_t seed, std::string_view name) {
  const at::Tensor drawn = at::empty({count}, at::kDouble);
  auto* to = drawn.mutable_data_ptr<double>();
  // A lane's parameter has its lane as second counter; no population has this many.
  constexpr uint32_t kNoLane = 0xFFFFFFFFu;
  for (int64_t i = 0; i < count; i += 2) {
    const Words4 words = philox4x32(seed, static_cast<uint32_t>(i / 2), kNoLane, name_hash(name),
                                    static_cast<uint32_t>(Purpose::kInitialise));
    for (int j = 0; j < 2 && i + j < count; ++j)
      to[i + j] = std::sqrt(-2 * std::log(share(words[2 * j]))) *
                  std::cos(2 * std::numbers::pi * share(words[2 * j + 1]));
  }
  return drawn;
}

}  // namespace

void init_orthogonal_(const at::Tensor& weight, double gain, uint64_t seed, std::string_view name) {
  TORCH_CHECK(weight.dim() == 2 && weight.is_floating_point(),
              "init_orthogonal_: weight: want [O,I] of floats, got ", weight.sizes(), " ",
              weight.scalar_type());
  const c10::NoGradGuard no_grad;
  const int64_t rows = weight.size(0), columns = weight.size(1);
  const int64_t longer = std::max(rows, columns), shorter = std::min(rows, columns);
  const at::Tensor normal = normal_numbers(longer * shorter, seed, name).view({longer, shorter});
  const auto [q, r] = at::linalg_qr(normal);
  const at::Tensor tall = q * r.diagonal().sign() * gain;
  weight.copy_(rows >= columns ? tall : tall.t());
}

void init_normal_(const at::Tensor& values, double deviation, uint64_t seed, std::string_view name) {
  const c10::NoGradGuard no_grad;
  values.copy_(normal_numbers(values.numel(), seed, name).view(values.sizes()) * deviation);
}

}  // namespace espalier::policy
