// Depthwise 3x3 convolutions of all lanes: one filter per channel, stride 1, padding of at most 2 pixels.
//
// The gradient of the data is a convolution too, of the output's gradient with filters that are turned around
// and 2 - padding pixels of padding: one kernel does both. Any float type; sums in f32, in f64 for f32 and
// f64. Deterministic: every sum is taken in an order that depends on a lane's shape alone; no atomics.
#pragma once

#include "espalier/lanes/kernel.h"

namespace espalier::lanes {

struct DepthwiseArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t channels = 0;
  int32_t height = 0;  // x's
  int32_t width = 0;
  int32_t out_height = 0;
  int32_t out_width = 0;
  int32_t padding = 0;
  KernelType type = KernelType::kBf16;  // x's, weight's and out's
  const int64_t* entries = nullptr;     // [L] cuda: negative: the lane is left out; nullptr: none is
  Stack x;                              // [L,B,H,W,C]; written by the gradient of the data
  Stack weight;                         // [L,C,3,3]
  Stack out;                            // [L,B,H',W',C]; the gradient of the output in the backward passes
  Stack bias;                           // [L,C] f32, f64 where x is; or nullptr
  Stack grad_weight;                    // [L,C,3,3] f32, f64 where x is
  void* partial = nullptr;              // depthwise_partials() sums
};

constexpr int kMostDepthwiseChannels = 512;  // their filters stand in shared memory, in f64 too

cudaError_t launch_depthwise_forward(const DepthwiseArgs& args, cudaStream_t stream);
cudaError_t launch_depthwise_backward_data(const DepthwiseArgs& args, cudaStream_t stream);
// Two kernels: sums over parts of the pixels, then their sum in a fixed order.
cudaError_t launch_depthwise_backward_weight(const DepthwiseArgs& args, cudaStream_t stream);
int64_t depthwise_partials(const DepthwiseArgs& args);  // f32; f64 where x is f32 or f64

}  // namespace espalier::lanes
