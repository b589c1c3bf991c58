// The norm kernels of all lanes at once: batch norm (+ residual) (+ ReLU) (+ max pool) in two kernels forward
// and two backward, group norm in one and two. Channels-last.
//
// Deterministic: sums over parts of a lane, in an order that depends on the lane's shape alone.
#pragma once

#include "espalier/lanes/kernel.h"

namespace espalier::lanes {

// The max pool after the ReLU, batch norm alone.
enum class NormPool : int32_t {
  kNone,
  k2x2,
  k3x3,  // two pixels apart, the first window one pixel over the edge
};

// Parameters, statistics and their gradients are f32, f64 for f64 ("wide"). Sums are f32, f64 for f32 and
// f64.
struct NormArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t height = 0;
  int32_t width = 0;
  int32_t channels = 0;
  int32_t groups = 0;  // group norm alone
  KernelType type = KernelType::kBf16;
  bool training = true;  // else the running statistics are used
  bool relu = false;
  bool rectified = false;  // group norm alone: x stands for relu(x)
  NormPool pool = NormPool::kNone;
  double eps = 0;
  double momentum = 0;
  const int64_t* entries = nullptr;  // [L] or nullptr: lanes left out
  const bool* mask = nullptr;        // [L,B] or nullptr
  int64_t mask_stride = 0;
  Stack x;       // [L,B,H,W,C]
  Stack out;     // [L,B,H,W,C] or pooled; in the backward passes the gradient of the output
  Stack grad_x;  // [L,B,H,W,C]; nullptr: not wanted
  // [L,B,H,W,C] added before the ReLU; nullptr: none. Not pooled; for group norm forward alone.
  Stack residual;
  Stack y;              // [L,B,H,W,C] backward, where there was a residual: the output
  Stack grad_residual;  // [L,B,H,W,C]; nullptr: not wanted
  // Written forward and read backward: the value of x that won its window, nullptr where nothing is to be
  // read of k2x2; for k3x3, whose windows overlap, dense, and its place there. [L,B,H',W',C]
  Stack winner_values;
  uint8_t* winners = nullptr;
  Stack weight, bias;               // [L,C] wide
  Stack running_mean, running_var;  // [L,C] wide; batch norm alone
  Stack grad_weight, grad_bias;     // [L,C] wide
  // Written forward, read backward: [L,C] (batch) or [L,B,G] (group), dense, wide.
  void* mean = nullptr;
  void* scale = nullptr;        // 1 / sqrt(variance + eps)
  void* count = nullptr;        // [L] wide, batch norm: values per channel
  double* fallbacks = nullptr;  // [L] or nullptr; batch norm: gets 1 more where a single value was there
  void* partial = nullptr;      // ..._norm_partials() values of the sums' type
};

int64_t batch_norm_partials(const NormArgs& args);
cudaError_t launch_batch_norm_forward(const NormArgs& args, cudaStream_t stream);
cudaError_t launch_batch_norm_backward(const NormArgs& args, cudaStream_t stream);

int64_t group_norm_partials(const NormArgs& args);
cudaError_t launch_group_norm_forward(const NormArgs& args, cudaStream_t stream);
cudaError_t launch_group_norm_backward(const NormArgs& args, cudaStream_t stream);

}  // namespace espalier::lanes
