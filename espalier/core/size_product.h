// Products and sums of sizes from outside (options, files, callers), which may be anything: a product that
// wrapped around would pass as a small size, and the memory behind it would be too short.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>

namespace espalier {

// None where a size is negative or 63 bits do not hold the product.
inline std::optional<int64_t> checked_product(std::initializer_list<int64_t> sizes) {
  int64_t product = 1;
  bool is_zero = false, overflows = false;
  for (const int64_t size : sizes) {
    if (size < 0) return std::nullopt;
    is_zero = is_zero || size == 0;
    overflows = overflows || __builtin_mul_overflow(product, size, &product);
  }
  if (is_zero) return 0;
  return overflows ? std::nullopt : std::optional(product);
}

// For sizes that are compared with what there is: more than anything has, where it does not fit.
inline constexpr int64_t kTooLarge = std::numeric_limits<int64_t>::max();

inline int64_t saturated_product(std::initializer_list<int64_t> sizes) {
  return checked_product(sizes).value_or(kTooLarge);
}

inline int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kTooLarge : sum;
}

}  // namespace espalier
