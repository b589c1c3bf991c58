// Kernels of blanking.h, without torch.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "espalier/linet/rules.h"

namespace espalier::linet {

struct BlankingArgs {
  LinetRules rules = LinetRules::kOriginal;
  uint64_t seed = 0;
  const double* step = nullptr;         // [1]
  const double* probability = nullptr;  // [1]
  int32_t streams = 0;
  int32_t batch = 0;
  bool* keep = nullptr;  // [S,B] dense
};
cudaError_t launch_blanking(const BlankingArgs& args, cudaStream_t stream);

struct DropoutArgs {
  uint64_t seed = 0;
  const double* step = nullptr;  // [1]
  double probability = 0;
  int64_t count = 0;
  float* factors = nullptr;  // [count]
};
cudaError_t launch_dropout(const DropoutArgs& args, cudaStream_t stream);

}  // namespace espalier::linet
