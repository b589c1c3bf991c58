// What everything of one episode is drawn from: a function of the job's seed and the round.
#pragma once

#include <cstdint>

#include "espalier/core/philox.h"

namespace espalier::train {

inline uint64_t episode_seed(uint64_t seed, int64_t round) {
  const auto number = static_cast<uint64_t>(round);
  const Words4 words = philox4x32(seed, static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0,
                                  static_cast<uint32_t>(Purpose::kEpisode));
  return uint64_t{words[1]} << 32 | words[0];
}

}  // namespace espalier::train
