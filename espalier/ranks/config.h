// What a user says about ranks: which backend carries their messages, and how long one may be silent.
#pragma once

#include <string>

namespace espalier::ranks {

struct RanksConfig {
  std::string backend = "auto";  // as torch.distributed names it; auto: gloo, and nccl between GPUs
  double limit_seconds = 60;     // a rank that is silent for longer ends the run
};

}  // namespace espalier::ranks
