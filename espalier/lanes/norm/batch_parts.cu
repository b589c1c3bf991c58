// Many parts of a lane's statistics or sums to one. A block owns 32 channels; its warps share the parts out,
// and the first adds the others' up, in order. See batch.cuh.
#include "espalier/lanes/norm/batch.cuh"

namespace espalier::lanes::batch_norm {
namespace {

constexpr int kChannels = 32, kSharers = kThreads / kChannels;

// [L][parts][3][C]: means, squared deviations, counts; about the first mean that there is.
template <class S>
__global__ void __launch_bounds__(kThreads)
    statistics_parts_kernel(S* partial, int parts, int channels, const int64_t* entries) {
  if (entries != nullptr && entries[blockIdx.y] < 0) return;
  const int channel = blockIdx.x * kChannels + threadIdx.x % kChannels, sharer = threadIdx.x / kChannels;
  S* const own = partial + static_cast<int64_t>(blockIdx.y) * parts * 3 * channels + channel;
  const bool valid = channel < channels;
  S shift = 0, sums[3] = {};
  if (valid) {
    for (int part = 0; part < parts; ++part)
      if (own[(part * 3 + 2) * channels] > 0) {
        shift = own[part * 3 * channels];
        break;
      }
#pragma unroll 8
    for (int part = sharer; part < parts; part += kSharers) {
      const S* const from = own + part * 3 * channels;
      const S count = from[2 * channels], step = count > 0 ? from[0] - shift : S(0);
      sums[0] += count;
      sums[1] += count * step;
      sums[2] += from[channels] + count * step * step;
    }
  }
  __shared__ S shared[3][kThreads];
  for (int i = 0; i < 3; ++i) shared[i][threadIdx.x] = sums[i];
  __syncthreads();
  if (sharer != 0 || !valid) return;
  for (int other = 1; other < kSharers; ++other)
    for (int i = 0; i < 3; ++i) sums[i] += shared[i][other * kChannels + threadIdx.x];
  const S share = sums[0] > 0 ? sums[1] / sums[0] : S(0);
  own[0] = shift + share;
  own[channels] = sums[2] - sums[1] * share;
  own[2 * channels] = sums[0];
}

// [L][parts][2][C]: plain sums.
template <class S>
__global__ void __launch_bounds__(kThreads)
    sums_parts_kernel(S* partial, int parts, int channels, const int64_t* entries) {
  if (entries != nullptr && entries[blockIdx.y] < 0) return;
  const int channel = blockIdx.x * kChannels + threadIdx.x % kChannels, sharer = threadIdx.x / kChannels;
  S* const own = partial + static_cast<int64_t>(blockIdx.y) * parts * 2 * channels + channel;
  const bool valid = channel < channels;
  S sums[2] = {};
  if (valid)
#pragma unroll 8
    for (int part = sharer; part < parts; part += kSharers) {
      sums[0] += own[part * 2 * channels];
      sums[1] += own[(part * 2 + 1) * channels];
    }
  __shared__ S shared[2][kThreads];
  for (int i = 0; i < 2; ++i) shared[i][threadIdx.x] = sums[i];
  __syncthreads();
  if (sharer != 0 || !valid) return;
  for (int other = 1; other < kSharers; ++other)
    for (int i = 0; i < 2; ++i) sums[i] += shared[i][other * kChannels + threadIdx.x];
  own[0] = sums[0];
  own[channels] = sums[1];
}

template <class S>
void launch(const NormArgs& args, PartKind kind, int parts, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((args.channels + kChannels - 1) / kChannels),
                  static_cast<unsigned>(args.lanes));
  const auto kernel = kind == PartKind::kStatistics ? statistics_parts_kernel<S> : sums_parts_kernel<S>;
  kernel<<<grid, kThreads, 0, stream>>>(static_cast<S*>(args.partial), parts, args.channels, args.entries);
}

}  // namespace

Parts merge_parts(const NormArgs& args, PartKind kind, int parts, cudaStream_t stream) {
  if (parts <= kFewParts) return {parts, parts};
  const bool is_wide = args.type == KernelType::kF32 || args.type == KernelType::kF64;
  is_wide ? launch<double>(args, kind, parts, stream) : launch<float>(args, kind, parts, stream);
  return {parts, 1};
}

}  // namespace espalier::lanes::batch_norm
