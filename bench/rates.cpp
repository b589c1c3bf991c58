#include "bench/rates.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>

namespace espalier::bench {
namespace {

// Larger than any cache, and than the last one of a GPU (50 MB on an H200).
int64_t copy_bytes(c10::Device device, bool smoke) {
  if (smoke) return int64_t{1} << 20;
  return device.is_cpu() ? int64_t{1} << 28 : int64_t{1} << 30;
}

// Large enough that a product is bound by its arithmetic.
int64_t product_size(c10::Device device, bool smoke) {
  if (smoke) return 128;
  return device.is_cpu() ? 1536 : 8192;
}

}  // namespace

double MachineRates::floor_us(double bytes, double flops) const {
  return std::max(bytes / copy_bytes_per_us, flops / product_flops_per_us);
}

std::string type_name(at::ScalarType type) {
  return type == at::kFloat ? "fp32" : type == at::kHalf ? "fp16" : "bf16";
}

MachineRates measure_rates(c10::Device device, at::ScalarType type, bool smoke) {
  const TimingPlan plan = smoke             ? TimingPlan{.warm_up = 1, .samples = 3, .calls = 1}
                          : device.is_cpu() ? TimingPlan{.warm_up = 2, .samples = 10, .calls = 1}
                                            : TimingPlan{.warm_up = 5, .samples = 10, .calls = 10};
  const int64_t bytes = copy_bytes(device, smoke), size = product_size(device, smoke);
  MachineRates rates;
  {
    const auto options = at::TensorOptions(device).dtype(at::kByte);
    const at::Tensor from = at::zeros({bytes}, options), to = at::zeros({bytes}, options);  // [bytes] u8
    const Timing timing = time_calls(device, plan, [&] { to.copy_(from); });
    rates.copy_bytes_per_us = 2 * static_cast<double>(bytes) / timing.best_us;
  }
  // As lanes have it: fp32 means fp32, without TF32.
  const at::NoTF32Guard exact;
  const auto options = at::TensorOptions(device).dtype(type);
  // Numbers of either sign, not zeros: a card lowers its clock by what its multipliers have to switch.
  const at::Tensor a = at::empty({size, size}, options).uniform_(-1, 1),
                   b = at::empty({size, size}, options).uniform_(-1, 1);  // [size,size]
  at::Tensor product = at::empty({size, size}, options);
  const Timing timing = time_calls(device, plan, [&] { at::mm_out(product, a, b); });
  const auto side = static_cast<double>(size);
  rates.product_flops_per_us = 2 * side * side * side / timing.best_us;
  rates.product_type = type_name(type);
  rates.sizes = fmt::format("a copy of {} MiB, a product of {} x {}", bytes >> 20, size, size);
  return rates;
}

}  // namespace espalier::bench
