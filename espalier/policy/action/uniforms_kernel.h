// Kernel of uniforms.h, without torch.
#pragma once

#include <cuda_runtime_api.h>

#include "espalier/policy/action/choice_random.h"

namespace espalier::policy {

cudaError_t launch_uniforms(const UniformsArgs& args, cudaStream_t stream);

}  // namespace espalier::policy
