// The kernels of lane_branch: one launch per pass, two where a sum over a whole lane is wanted. Empty entries
// leave at once, and nothing of them is written. Deterministic: no atomics, sums in an order that a sample's
// size gives.
#pragma once

#include "espalier/grow/seeds/branch_formula.h"
#include "espalier/lanes/kernel.h"

namespace espalier::grow {

struct BranchArgs {
  int32_t entries = 0;
  int32_t batch = 0;
  int32_t values = 0;    // per sample
  int32_t channels = 0;  // scale alone
  lanes::KernelType type = lanes::KernelType::kBf16;
  const int64_t* active = nullptr;  // [E] cuda; negative: empty; nullptr: none is
  lanes::Stack a;                   // [E,B,values]: x; the gradient of the output backward
  lanes::Stack b;                   // [E,B,values]: y; what was saved
  lanes::Stack out;                 // [E,B,values]
};

// out = formula(a, b).
cudaError_t launch_formula(Formula formula, const BranchArgs& args, cudaStream_t stream);

struct MixArgs {
  BranchArgs branches;          // a: x, b: y, out: the output; its gradient backward
  lanes::Stack t;               // [E] wide, lane_stride apart
  lanes::Stack grad_x, grad_y;  // [E,B,values]
  lanes::Stack grad_t;          // [E] wide
  void* partial = nullptr;      // [E,B] f32, f64 where a is f32 or f64: every sample's share of grad_t
};
cudaError_t launch_mix_forward(const MixArgs& args, cudaStream_t stream);
cudaError_t launch_mix_backward(const MixArgs& args, cudaStream_t stream);

struct ScaleArgs {
  BranchArgs branches;      // channels-last; a: x, out: the output; its gradient backward
  lanes::Stack scale;       // [E,B,C] wide
  lanes::Stack grad_x;      // [E,B,values]
  lanes::Stack grad_scale;  // [E,B,C] wide
};
cudaError_t launch_scale_forward(const ScaleArgs& args, cudaStream_t stream);
cudaError_t launch_scale_backward(const ScaleArgs& args, cudaStream_t stream);

}  // namespace espalier::grow
