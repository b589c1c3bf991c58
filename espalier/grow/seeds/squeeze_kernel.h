// Kernels of squeeze.h. Deterministic: the order of every sum depends on an entry's shape alone.
#pragma once

#include "espalier/lanes/kernel.h"

namespace espalier::grow {

inline constexpr int kMostSqueezeFeatures = 1024;  // that a layer may have: shared memory holds them

struct SqueezeArgs {
  int32_t entries = 0;
  int32_t batch = 0;
  int32_t pixels = 0;
  int32_t channels = 0;                               // C
  int32_t hidden = 0;                                 // M
  int32_t outputs = 0;                                // O
  lanes::KernelType type = lanes::KernelType::kBf16;  // x's; the rest is wide
  double factor = 1;
  const int64_t* active = nullptr;  // [E]; negative: empty; null: none is
  lanes::Stack x;                   // [E,B,H,W,C]; its gradient backward
  lanes::Stack first_weight;        // [E,M,C]
  lanes::Stack first_bias;          // [E,M]
  lanes::Stack second_weight;       // [E,O,M]
  lanes::Stack second_bias;         // [E,O]
  lanes::Stack pooled;              // [E,B,C]
  lanes::Stack middle;              // [E,B,M]: behind the ReLU
  lanes::Stack out;                 // [E,B,O]
  lanes::Stack shares;              // [E,B,O] f32, f64 where x is f32 or f64: the sigmoid, for the way back
  // Backward.
  lanes::Stack grad_out;                            // [E,B,O]
  lanes::Stack grad_middle;                         // [E,B,M] f32, f64 where x is f32 or f64: before the ReLU
  lanes::Stack grad_second;                         // [E,B,O] the same: before the sigmoid
  lanes::Stack grad_first_weight, grad_first_bias;  // as the weights
  lanes::Stack grad_second_weight, grad_second_bias;  // as the weights
};

cudaError_t launch_squeeze_forward(const SqueezeArgs& args, cudaStream_t stream);
// grad_middle, grad_second and x's gradient, then those of the weights.
cudaError_t launch_squeeze_backward(const SqueezeArgs& args, cudaStream_t stream);

}  // namespace espalier::grow
