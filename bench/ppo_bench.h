// Rounds of PPO as a user runs them: `espalier train ppo` in a process of its own, and the times that it
// wrote down.
#pragma once

#include <string>
#include <vector>

#include "bench/harness.h"

namespace espalier::bench {

// One way to run rounds.
struct PpoCase {
  std::string name;                // "espalier"
  std::vector<std::string> flags;  // of `espalier train ppo`; the run's folder and the like come after them
};

// Adds the time of the rounds after `num_warm` as one case: the first rounds measure convolutions, make
// memory and capture. The host's own time is the other process's and stays unknown.
void measure_ppo(const PpoCase& measured, const std::string& shapes, int64_t num_warm, Report& report);

}  // namespace espalier::bench
