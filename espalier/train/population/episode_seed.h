// The seed that everything of one episode is drawn from: a function of the job's seed and the round.
#pragma once

#include <cstdint>

#include "espalier/core/random/philox.h"

namespace espalier::train {

// Episodes that are held out begin here: rounds of training count from 0 and never get there.
inline constexpr int64_t kFirstHeldOutRound = int64_t{1} << 24;

// An episode's number among those of its kind, from 0.
constexpr int64_t episode_of(int64_t round) {
  return round >= kFirstHeldOutRound ? round - kFirstHeldOutRound : round;
}

inline uint64_t episode_seed(uint64_t seed, int64_t round) {
  const auto number = static_cast<uint64_t>(round);
  const Words4 words = philox4x32(seed, static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32), 0,
                                  static_cast<uint32_t>(Purpose::kEpisode));
  return uint64_t{words[1]} << 32 | words[0];
}

}  // namespace espalier::train
