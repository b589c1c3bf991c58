// Kernel of built_in.h, without torch.
#pragma once

#include <cuda_runtime_api.h>

#include "espalier/policy/reward/terms.h"

namespace espalier::policy {

cudaError_t launch_reward(const RewardArgs& args, cudaStream_t stream);

}  // namespace espalier::policy
