// The kernels of blend_op: lanes gathered into the entries of a stack, and the stacks of a slot blended back,
// all in one pass over the lanes. Deterministic: no atomics, sums in an order that a sample's size gives.
#pragma once

#include "espalier/lanes/kernel.h"

namespace espalier::grow {

constexpr int kMostStacks = 8;  // in one launch

// One of the stacks that a slot's lanes may have their seed in.
struct StackLanes {
  const int64_t* entry_of_lane = nullptr;  // [L] cuda; negative: not here
  lanes::Stack seeds;       // [E,B,values]; of select: the input, backward its gradient, or nullptr
  lanes::Stack inputs;      // [E,B,values]; of blend, backward: what h was, nullptr: it still is
  lanes::Stack gates;       // [E,B] wide, or nullptr
  lanes::Stack grad_seeds;  // [E,B,values]; empty entries are not written
  lanes::Stack grad_gates;  // [E,B] wide, or nullptr
};

struct BlendArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t values = 0;  // per sample
  lanes::KernelType type = lanes::KernelType::kBf16;
  const float* amplitude = nullptr;         // [L] cuda
  const uint8_t* blend_operator = nullptr;  // [L] cuda
  const bool* isolated = nullptr;           // [L] cuda
  const int64_t* active = nullptr;  // [L] cuda, forward: lanes that are negative are left out; null: none
  lanes::Stack h;                   // [L,B,values]
  lanes::Stack out;                 // [L,B,values]; its gradient backward: nullptr: zeros (select alone)
  lanes::Stack grad_h;              // [L,B,values]; may be `out` itself, as `out` may be h forward
  int32_t num_stacks = 0;
  StackLanes stacks[kMostStacks];
};

// The inputs of all stacks from h; those of empty entries are not written.
cudaError_t launch_select_forward(const BlendArgs& args, cudaStream_t stream);
// grad_h: the gradient of `through`, and of the inputs added where a lane is not isolated.
cudaError_t launch_select_backward(const BlendArgs& args, cudaStream_t stream);
cudaError_t launch_blend_forward(const BlendArgs& args, cudaStream_t stream);
cudaError_t launch_blend_backward(const BlendArgs& args, cudaStream_t stream);

}  // namespace espalier::grow
