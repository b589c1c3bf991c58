// Kernel of observation.h, without torch.
#pragma once

#include <cuda_runtime_api.h>

#include "espalier/policy/observe/features.h"

namespace espalier::policy {

cudaError_t launch_observe(const ObserveArgs& args, cudaStream_t stream);

}  // namespace espalier::policy
