// Rounds of PPO as a user runs them: `espalier train ppo` in a process of its own, and the times that it
// wrote down.
#pragma once

#include <string>
#include <vector>

#include "bench/harness.h"

namespace espalier::bench {

// Flags of `espalier train ppo`, after which come the run's folder and the like.
// Adds the seconds of the rounds after `num_warm` as one case: the first rounds measure convolutions, make
// memory and capture.
void measure_ppo(const std::string& shapes, const std::vector<std::string>& flags, int64_t num_warm,
                 Report& report);

}  // namespace espalier::bench
