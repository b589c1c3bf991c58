// Which kernel takes a convolution, and the sum of a weight gradient's parts.
#include "espalier/lanes/conv/kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes {

bool takes_first(const ConvSizes& sizes);
cudaError_t launch_first_forward(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_first_backward_weight(const ConvArgs& args, cudaStream_t stream);
int first_weight_parts(const ConvSizes& sizes);
bool takes_point(const ConvSizes& sizes);
cudaError_t launch_point_forward(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_point_backward_data(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_point_backward_weight(const ConvArgs& args, cudaStream_t stream);
int point_weight_parts(const ConvSizes& sizes);
bool takes_image(const ConvSizes& sizes);
cudaError_t launch_image_forward(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_image_backward_data(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_image_backward_weight(const ConvArgs& args, cudaStream_t stream);
int image_weight_parts(const ConvSizes& sizes);
cudaError_t launch_vector_forward(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_vector_backward_data(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_vector_backward_weight(const ConvArgs& args, cudaStream_t stream);
int vector_weight_parts(const ConvSizes& sizes);
cudaError_t launch_narrow_forward(const ConvArgs& args, cudaStream_t stream);
cudaError_t launch_narrow_backward_weight(const ConvArgs& args, cudaStream_t stream);
int narrow_weight_parts(const ConvSizes& sizes);

namespace {

using Launch = cudaError_t (*)(const ConvArgs& args, cudaStream_t stream);

// The kernels of one kind of convolution.
struct Kernels {
  bool (*takes)(const ConvSizes& sizes);
  Launch forward;
  Launch backward_data;  // nullptr: a first convolution has none
  Launch backward_weight;
  int (*weight_parts)(const ConvSizes& sizes);
};

// The first that takes a convolution does it: which one depends on the lane's shape alone.
constexpr Kernels kKinds[] = {
    {takes_first, launch_first_forward, nullptr, launch_first_backward_weight, first_weight_parts},
    {takes_point, launch_point_forward, launch_point_backward_data, launch_point_backward_weight,
     point_weight_parts},
    {takes_image, launch_image_forward, launch_image_backward_data, launch_image_backward_weight,
     image_weight_parts},
    {takes_vector, launch_vector_forward, launch_vector_backward_data, launch_vector_backward_weight,
     vector_weight_parts},
    {takes_narrow, launch_narrow_forward, nullptr, launch_narrow_backward_weight, narrow_weight_parts},
};

const Kernels& kernels_of(const ConvSizes& sizes) {
  for (const Kernels& kind : kKinds)
    if (kind.takes(sizes)) return kind;
  return kKinds[4];
}

constexpr int kThreads = 256;

// kSumRows threads a weight: thread r adds the parts r, r + kSumRows, ... in their order, the first of them
// the rows in theirs. blockIdx.y: lane.
constexpr int kSumRows = 8;
constexpr int kSumWeights = kThreads / kSumRows;

__global__ void __launch_bounds__(kThreads)
    add_parts_kernel(const float* partial, int parts, int values, float* to, int64_t to_stride,
                     const int64_t* entries) {
  __shared__ float sums[kSumRows][kSumWeights];
  const int lane = blockIdx.y, column = threadIdx.x % kSumWeights, row = threadIdx.x / kSumWeights;
  if (entries != nullptr && entries[lane] < 0) return;
  const int value = blockIdx.x * kSumWeights + column;
  float sum = 0;
  if (value < values) {
    const float* const from = partial + static_cast<int64_t>(lane) * parts * values + value;
#pragma unroll 8
    for (int part = row; part < parts; part += kSumRows) sum += from[static_cast<int64_t>(part) * values];
  }
  sums[row][column] = sum;
  __syncthreads();
  if (row > 0 || value >= values) return;
#pragma unroll
  for (int other = 1; other < kSumRows; ++other) sum += sums[other][column];
  to[lane * to_stride + value] = sum;
}

// One thread a weight. blockIdx.y: lane.
template <class T>
__global__ void __launch_bounds__(kThreads)
    widen_weight_kernel(Stack narrow_weight, int values, float* to, int64_t to_stride) {
  const int value = blockIdx.x * kThreads + threadIdx.x;
  if (value >= values) return;
  to[blockIdx.y * to_stride + value] =
      widen<T>((static_cast<const T*>(narrow_weight.data) + blockIdx.y * narrow_weight.lane_stride)[value]);
}

int weight_values(const ConvSizes& sizes) {
  return sizes.filters * sizes.kernel * sizes.kernel * sizes.channels;
}

}  // namespace

cudaError_t launch_conv_forward(const ConvArgs& args, cudaStream_t stream) {
  return kernels_of(args.sizes).forward(args, stream);
}

cudaError_t launch_conv_backward_data(const ConvArgs& args, cudaStream_t stream) {
  return kernels_of(args.sizes).backward_data(args, stream);
}

cudaError_t launch_conv_backward_weight(const ConvArgs& args, cudaStream_t stream) {
  const Kernels& kernels = kernels_of(args.sizes);
  if (const cudaError_t error = kernels.backward_weight(args, stream)) return error;
  const int values = weight_values(args.sizes);
  add_parts_kernel<<<dim3((values + kSumWeights - 1) / kSumWeights, args.sizes.lanes), kThreads, 0, stream>>>(
      args.partial, kernels.weight_parts(args.sizes), values, args.grad_weight, args.grad_weight_stride,
      args.entries);
  return cudaGetLastError();
}

cudaError_t launch_widen_weight(KernelType type, int lanes, int values, Stack narrow_weight, float* to,
                                int64_t to_stride, cudaStream_t stream) {
  const dim3 blocks((values + kThreads - 1) / kThreads, lanes);
  return for_type(type, [&](auto value) {
    widen_weight_kernel<decltype(value)>
        <<<blocks, kThreads, 0, stream>>>(narrow_weight, values, to, to_stride);
    return cudaGetLastError();
  });
}

int64_t conv_weight_partials(const ConvSizes& sizes) {
  return static_cast<int64_t>(sizes.lanes) * kernels_of(sizes).weight_parts(sizes) * weight_values(sizes);
}

}  // namespace espalier::lanes
