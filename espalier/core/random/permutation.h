// A shuffled order without an array: a keyed bijection of [0, size), evaluated at any position in O(1), the
// same on the CPU and inside a kernel.
//
// A Feistel network over the next power of two (at least 16), whose halves may differ by one bit, with cycle
// walking: a value outside [0, size) is sent through again, and since the network is a bijection of the
// larger domain the walk returns inside and never collides (Black and Rogaway, "Ciphers with arbitrary finite
// domains", CT-RSA 2002). Expected steps: domain / size, below 2. Integers only: the same order in every
// process and build.
#pragma once

#include <bit>
#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/core/random/philox.h"

namespace espalier {

class Permutation {
 public:
  // The order that belongs to (key, epoch, purpose, stream). `size` >= 1, below 2^62.
  ESPALIER_HOST_DEVICE Permutation(uint64_t key, uint64_t epoch, uint64_t size, Purpose purpose,
                                   uint32_t stream = 0)
      : size_(size),
        keys_(philox4x32(key, static_cast<uint32_t>(epoch), static_cast<uint32_t>(epoch >> 32),
                         static_cast<uint32_t>(purpose), stream)) {
    const uint32_t needed = size > 1 ? bit_width(size - 1) : 0;
    const uint32_t bits = needed < 4 ? 4 : needed;
    low_bits_ = bits / 2;
    high_bits_ = bits - low_bits_;
  }

  // The element at `position`, which lies in [0, size).
  ESPALIER_HOST_DEVICE uint64_t operator()(uint64_t position) const {
    uint64_t value = position;
    do {
      value = mix(value);
    } while (value >= size_);
    return value;
  }

 private:
  static constexpr uint32_t kRounds =
      8;  // 4 are enough for a pseudo-random order; 8 pass our tests on tiny sizes

  // Bits of a value that is not 0.
  ESPALIER_HOST_DEVICE static uint32_t bit_width(uint64_t value) {
#ifdef __CUDA_ARCH__
    return static_cast<uint32_t>(64 - __clzll(static_cast<long long>(value)));
#else
    return static_cast<uint32_t>(std::bit_width(value));
#endif
  }

  ESPALIER_HOST_DEVICE static uint32_t scramble(uint32_t x) {
    x *= 0x9E3779B1u;
    x ^= x >> 15;
    x *= 0x85EBCA77u;
    x ^= x >> 13;
    x *= 0xC2B2AE3Du;
    x ^= x >> 16;
    return x;
  }

  ESPALIER_HOST_DEVICE uint64_t mix(uint64_t value) const {
    const uint32_t low_mask = static_cast<uint32_t>((uint64_t{1} << low_bits_) - 1);
    const uint32_t high_mask = static_cast<uint32_t>((uint64_t{1} << high_bits_) - 1);
    uint32_t low = static_cast<uint32_t>(value) & low_mask;
    uint32_t high = static_cast<uint32_t>(value >> low_bits_) & high_mask;
    for (uint32_t round = 0; round < kRounds; round += 2) {
      // Four key words serve eight rounds: the added round number tells the two uses of a word apart.
      high ^= scramble(low ^ (keys_.word[round & 3] + round)) & high_mask;
      low ^= scramble(high ^ (keys_.word[(round + 1) & 3] + round)) & low_mask;
    }
    return (uint64_t{high} << low_bits_) | low;
  }

  uint64_t size_;
  Words4 keys_;
  uint32_t low_bits_;
  uint32_t high_bits_;
};

}  // namespace espalier
