// What is left out of a training step, by counter-based numbers that the CPU and a kernel share: a value
// depends on (seed, step, sample, stream or feature) alone.
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/core/random/philox.h"
#include "espalier/linet/rules.h"

namespace espalier::linet {

// Whether a word falls into a share of all of them: never for 0, always for 1.
ESPALIER_HOST_DEVICE bool falls_into(uint32_t word, double probability) {
  return static_cast<double>(word) < probability * 4294967296.0;
}

// kOriginal: the probability is the sample's; one of its streams, drawn evenly, is blanked, and never a
// second. kEspalier: the probability is every stream's; where all of a sample's would be blanked, one that is
// drawn stays.
ESPALIER_HOST_DEVICE bool keeps_stream(LinetRules rules, uint64_t seed, uint32_t step, uint32_t sample,
                                       uint32_t stream, uint32_t streams, double probability) {
  const auto words = [&](uint32_t which) {
    return philox4x32(seed, sample, which, step, static_cast<uint32_t>(Purpose::kBlanking));
  };
  if (rules == LinetRules::kOriginal) {
    const Words4 drawn = words(0);
    return !falls_into(drawn[0], probability) || below(drawn[1], streams) != stream;
  }
  if (!falls_into(words(stream)[0], probability)) return true;
  for (uint32_t other = 0; other < streams; ++other)
    if (!falls_into(words(other)[0], probability)) return false;
  return below(words(0)[1], streams) == stream;
}

// 0, or what makes up for those that are: the mean stays (Srivastava et al., "Dropout", JMLR 2014).
ESPALIER_HOST_DEVICE float dropout_factor(uint64_t seed, uint32_t step, uint32_t place, double probability) {
  const uint32_t word = philox4x32(seed, place, 0, step, static_cast<uint32_t>(Purpose::kDropout))[0];
  return falls_into(word, probability) ? 0.0f : static_cast<float>(1 / (1 - probability));
}

}  // namespace espalier::linet
