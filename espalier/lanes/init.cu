// blockIdx: four values per thread (one draw gives four words), lane. A value is drawn by its place in the
// order of the axes and written where that place lies. Deterministic: every value has one thread.
#include <algorithm>

#include "espalier/core/random/philox.h"
#include "espalier/lanes/init_kernel.h"
#include "espalier/lanes/uniform_value.h"

namespace espalier::lanes {
namespace {

constexpr int kThreads = 256;
constexpr int kWords = 4;
constexpr int64_t kMostLanesAtOnce = 65535;  // the limit of a grid's second axis

template <class T>
__global__ void __launch_bounds__(kThreads)
    init_uniform_kernel(const __grid_constant__ InitUniformArgs args) {
  const int64_t draw = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (draw * kWords >= args.values) return;
  T* const lane = static_cast<T*>(args.data) + blockIdx.y * args.lane_stride;
  const Words4 words = philox4x32(args.seed, static_cast<uint32_t>(draw), args.first_lane + blockIdx.y,
                                  args.name, static_cast<uint32_t>(Purpose::kInitialise));
  for (int i = 0; i < kWords && draw * kWords + i < args.values; ++i) {
    int64_t place = draw * kWords + i, offset = 0;
    for (int axis = args.num_axes - 1; axis >= 0; --axis) {
      offset += place % args.sizes[axis] * args.strides[axis];
      place /= args.sizes[axis];
    }
    lane[offset] = static_cast<T>(uniform_value(words[i], args.bound));
  }
}

}  // namespace

cudaError_t launch_init_uniform(const InitUniformArgs& args, cudaStream_t stream) {
  const int64_t draws = (args.values + kWords - 1) / kWords;
  const auto blocks = static_cast<unsigned>((draws + kThreads - 1) / kThreads);
  if (blocks == 0) return cudaSuccess;
  for (int64_t done = 0; done < args.lanes; done += kMostLanesAtOnce) {
    InitUniformArgs part = args;
    const int64_t item_bytes = args.is_double ? 8 : 4;
    part.data = static_cast<char*>(args.data) + done * args.lane_stride * item_bytes;
    part.first_lane += static_cast<uint32_t>(done);
    const dim3 grid(blocks, static_cast<unsigned>(std::min(args.lanes - done, kMostLanesAtOnce)));
    if (args.is_double)
      init_uniform_kernel<double><<<grid, kThreads, 0, stream>>>(part);
    else
      init_uniform_kernel<float><<<grid, kThreads, 0, stream>>>(part);
    if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

}  // namespace espalier::lanes
