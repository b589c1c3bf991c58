// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
// SC 2011). A value depends on its key and counter alone, never on who asks or in what order, so the CPU, a
// kernel and a restarted run draw the same ones. Integers only: the same on every build.
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"

namespace espalier {

struct Words4 {
  uint32_t word[4];
  ESPALIER_HOST_DEVICE uint32_t operator[](int i) const { return word[i]; }
};

ESPALIER_HOST_DEVICE Words4 philox4x32(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;  // the golden ratio and sqrt(3) - 1, as in the paper
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// What a number is for: streams of different purpose never meet, though they share a seed.
enum class Purpose : uint32_t {
  kPermutation = 1,
  kAugmentation = 2,
  kValidation = 3,
  kSynthetic = 4,
  kInitialise = 5,
  kBlanking = 6,
  kDropout = 7,
  kControl = 8,
  kChoice = 9,
  kEpisode = 10,
  kSignFlip = 11,
};

// An integer in [0, count), from one word. The bias is below count / 2^32.
ESPALIER_HOST_DEVICE uint32_t below(uint32_t word, uint32_t count) {
  return static_cast<uint32_t>((uint64_t{word} * count) >> 32);
}

}  // namespace espalier
