// The convolution kernels of all lanes at once: bf16 and f16 on tensor cores, fp32 sums, channels-last.
//
// Kinds, by a lane's shape; the first that fits does a convolution (dispatch.cu):
//   first   a network's first convolution, 3x3 of 3 channels: windows as four chunks of shared memory
//   point   1x1 of 8, 16 or 32 channels: products straight from global memory
//   image   3x3 of 8, 16 or 32 channels: whole images in shared memory
//   vector  channels and filters are multiples of 8: 16-byte vectors, an implicit matrix product per lane
//   narrow  other first convolutions: few values per pixel, staged in shared memory
// Deterministic: every sum is taken in an order that depends on a lane's shape alone; no atomics.
#pragma once

#include "espalier/lanes/kernel.h"

namespace espalier::lanes {

struct ConvSizes {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t channels = 0;  // x's
  int32_t height = 0;    // x's
  int32_t width = 0;
  int32_t filters = 0;
  int32_t out_height = 0;
  int32_t out_width = 0;
  int32_t kernel = 0;  // square
  int32_t stride = 1;
  int32_t padding = 0;
};

struct ConvArgs {
  ConvSizes sizes;
  KernelType type = KernelType::kBf16;  // kBf16 or kF16: of x, weight, out and grad
  const int64_t* entries = nullptr;     // [L] cuda: negative: the lane is left out; nullptr: none is
  Stack x;                              // [L,B,H,W,C]; written by the gradient of the data
  Stack weight;                         // [L,K,R,S,C]
  Stack out;                            // [L,B,H',W',K]; the gradient of the output in the backward passes
  const float* bias = nullptr;          // [L,K] f32, or nullptr
  int64_t bias_stride = 0;
  float* grad_weight = nullptr;  // [L,K,R,S,C] f32
  int64_t grad_weight_stride = 0;
  float* partial = nullptr;  // conv_weight_partials() values
};

// Whether the kernels take a problem: all three passes of a vector one, the two of a narrow one that a first
// convolution needs (not the gradient of the data).
bool takes_vector(const ConvSizes& sizes);
bool takes_narrow(const ConvSizes& sizes);

cudaError_t launch_conv_forward(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_conv_backward_data(const ConvArgs& args, cudaStream_t stream);
// Two kernels: sums over parts of the batch, then their sum in a fixed order.
cudaError_t launch_conv_backward_weight(const ConvArgs& args, cudaStream_t stream);
int64_t conv_weight_partials(const ConvSizes& sizes);

// A weight's gradient [L,K,R,S,C] of `type`, `values` per lane, as f32.
cudaError_t launch_widen_weight(KernelType type, int lanes, int values, Stack narrow_weight, float* to,
                                int64_t to_stride, cudaStream_t stream);

}  // namespace espalier::lanes
