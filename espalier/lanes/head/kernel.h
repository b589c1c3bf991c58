// Kernels of the small ops of all lanes: pooling, the linear map, loss and accuracy. Each is one launch
// per pass. Deterministic: orders of summation depend on a lane's shape alone.
#pragma once

#include "espalier/lanes/kernel.h"

namespace espalier::lanes {

struct PoolArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t height = 0;  // x's
  int32_t width = 0;
  int32_t channels = 0;
  KernelType type = KernelType::kBf16;
  const int64_t* entries = nullptr;
  Stack x;       // [L,B,H,W,C]
  Stack out;     // [L,B,H/2,W/2,C], or [L,B,C] of the global average; their gradients backward
  Stack grad_x;  // [L,B,H,W,C]
};
cudaError_t launch_max_pool_forward(const PoolArgs& args, cudaStream_t stream);
cudaError_t launch_max_pool_backward(const PoolArgs& args, cudaStream_t stream);
cudaError_t launch_average_pool_forward(const PoolArgs& args, cudaStream_t stream);
cudaError_t launch_average_pool_backward(const PoolArgs& args, cudaStream_t stream);

struct LinearArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t in_features = 0;
  int32_t out_features = 0;
  KernelType type = KernelType::kF32;  // x's; the rest is f32, or f64 where x is
  const int64_t* entries = nullptr;
  Stack x;                               // [L,B,I]
  Stack weight;                          // [L,O,I] wide
  Stack bias;                            // [L,O] wide, or nullptr
  Stack out;                             // [L,B,O] wide; its gradient backward
  Stack grad_x, grad_weight, grad_bias;  // nullptr: not wanted
};
cudaError_t launch_linear_forward(const LinearArgs& args, cudaStream_t stream);
cudaError_t launch_linear_backward(const LinearArgs& args, cudaStream_t stream);

inline constexpr int kMostPooledChannels = 512;  // whose means a warp keeps in shared memory

// The map of means over pixels: linear.x [L,B,C] is written forward and read backward.
struct PooledLinearArgs {
  LinearArgs linear;
  int32_t pixels = 0;
  Stack images;  // [L,B,H,W,C]; backward its gradient, or nullptr: not wanted
};
cudaError_t launch_pooled_linear_forward(const PooledLinearArgs& args, cudaStream_t stream);
cudaError_t launch_pooled_linear_backward(const PooledLinearArgs& args, cudaStream_t stream);

struct LossArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t classes = 0;
  KernelType type = KernelType::kF32;  // that of the logits
  const double* smoothing = nullptr;   // [L], or nullptr: none
  Stack logits;                        // [L,B,K]
  const int64_t* labels = nullptr;     // [L,B]
  int64_t labels_stride = 0;
  const bool* mask = nullptr;  // [L,B] or nullptr
  int64_t mask_stride = 0;
  Stack loss;                      // [L] wide, lane_stride apart; its gradient backward
  Stack grad_logits;               // [L,B,K]
  int64_t* num_correct = nullptr;  // [L]
  int64_t* num_valid = nullptr;    // [L]
  double* sums = nullptr;          // [3,L] or nullptr; forward: += loss times samples, hits, samples
};
cudaError_t launch_cross_entropy_forward(const LossArgs& args, cudaStream_t stream);
cudaError_t launch_cross_entropy_backward(const LossArgs& args, cudaStream_t stream);
cudaError_t launch_accuracy(const LossArgs& args, cudaStream_t stream);

struct ScoreArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t classes = 0;
  KernelType type = KernelType::kF32;  // that of the logits
  Stack logits;                        // [L,B,K]
  const int64_t* labels = nullptr;     // [L,B]
  int64_t labels_stride = 0;
  double* sums = nullptr;  // [3,L]: cross entropy, hits, samples
};
cudaError_t launch_add_scores(const ScoreArgs& args, cudaStream_t stream);

}  // namespace espalier::lanes
