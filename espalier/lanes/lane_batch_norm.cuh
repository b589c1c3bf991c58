// Batch norm of all lanes, with its residual, its ReLU and its 2x2 max pool.
//
// Forward: (1) every block takes a part of a lane's pixels and leaves mean and squared deviations of each
// channel; (2) every block adds the parts of its lane up, in order, and writes its share of the output.
// Backward: (1) a part's sums of g and g z (g the gradient past pool and ReLU, z the normalised input); (2)
// the parts' sum and the input's gradient. The winner of a pooling window and the ReLU are found again from
// the input, so nothing but the statistics is kept; past a residual the ReLU is found again from the output.
//
// Thread mapping: a thread owns a vector of channels (16 bytes, or one value) and walks over pixels, so its
// coefficients stay in registers. blockIdx: part of the pixels, lane, slice of the channels.
// Deterministic: the number of parts depends on the lane's shape alone.
#pragma once

#include <algorithm>

#include "espalier/core/divisor.h"
#include "espalier/lanes/lane_norm_kernel.h"
#include "espalier/lanes/vector_access.cuh"

namespace espalier::lanes::batch_norm {

constexpr int kThreads = 256;
constexpr int kValuesAPart = 131072;  // 256 KiB of bf16: long enough to pay for adding the parts up
constexpr int kMostParts = 128;

inline int num_parts(const NormArgs& args) {
  const int64_t values = static_cast<int64_t>(args.batch) * args.height * args.width * args.channels;
  return static_cast<int>(std::clamp<int64_t>(values / kValuesAPart, 1, kMostParts));
}

// How a block's threads lie over channels and pixels.
struct Slice {
  int across;  // threads across channels: a power of two
  int slices;  // blocks across channels
};

inline Slice slice_of(int vectors) {
  Slice slice{1, 0};
  while (slice.across * 2 <= std::min(vectors, 32)) slice.across *= 2;
  slice.slices = (vectors + slice.across - 1) / slice.across;
  return slice;
}

// The thread's place.
template <int kWidth>
struct Place {
  int lane, part, across, rows, tx, ty, channel;
  bool valid;  // has channels

  __device__ Place(const NormArgs& args, int across_)
      : lane(blockIdx.y),
        part(blockIdx.x),
        across(across_),
        rows(kThreads / across_),
        tx(threadIdx.x % across_),
        ty(threadIdx.x / across_),
        channel((blockIdx.z * across_ + threadIdx.x % across_) * kWidth),
        valid(channel < args.channels) {}
};

// A part's share of `total` pixels.
struct Range {
  int begin, end;
  __device__ Range(int total, int part, int parts) {
    const int each = (total + parts - 1) / parts;
    begin = min(total, part * each);
    end = min(total, begin + each);
  }
};

// What a block needs of every channel of its slice, in shared memory.
template <class W>
struct Coefficients {
  W mean[kThreads], scale[kThreads], weight[kThreads], bias[kThreads];
  W first[kThreads], second[kThreads];  // backward: the means of g and of g z times scale
};

// Adds the parts of [parts][kinds][C] up for the slice's channels: `combine(channel, part values...)` is the
// caller's. Threads share the parts of a channel out, then the first adds the others' in order.
template <class W, int kSums, class Gather>
__device__ void add_parts(int channels_here, int parts, W (*shared)[kThreads], W (&total)[kSums],
                          Gather&& gather) {
  const int sharers = kThreads / channels_here;
  const int channel = threadIdx.x % channels_here, sharer = threadIdx.x / channels_here;
  W sums[kSums] = {};
  if (sharer < sharers) {
#pragma unroll 8
    for (int part = sharer; part < parts; part += sharers) gather(channel, part, sums);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kSums; ++i) shared[i][threadIdx.x] = sums[i];
  __syncthreads();
  if (sharer == 0)
    for (int i = 0; i < kSums; ++i) {
      W all = 0;
      for (int other = 0; other < sharers; ++other) all += shared[i][other * channels_here + channel];
      total[i] = all;
    }
}

// A thread's own coefficients.
template <class W, int kWidth>
struct Own {
  W mean[kWidth], weight[kWidth], bias[kWidth];

  __device__ Own(const Coefficients<W>& shared, int tx) {
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      mean[j] = shared.mean[tx * kWidth + j];
      weight[j] = shared.weight[tx * kWidth + j];
      bias[j] = shared.bias[tx * kWidth + j];
    }
  }
};

// The output before pooling, as it is rounded: what the ReLU and a pooling window see.
template <class T>
__device__ inline wide_t<T> normalised(wide_t<T> x, wide_t<T> mean, wide_t<T> weight, wide_t<T> bias,
                                       bool relu) {
  const wide_t<T> y = widen<T>(narrow<T>((x - mean) * weight + bias));
  return relu && y < 0 ? wide_t<T>(0) : y;  // a NaN stays, as in torch
}

// The place of the largest of four, the first of equals; a NaN wins, as in torch.
template <class W>
__device__ inline int winner(const W (&values)[4], W& best) {
  int at = 0;
  best = values[0];
#pragma unroll
  for (int i = 1; i < 4; ++i)
    if (values[i] > best || values[i] != values[i]) {
      best = values[i];
      at = i;
    }
  return at;
}

// How the windows of a lane are counted.
struct Windows {
  Divisor a_row, a_sample;
};

// A pooling window: its sample, and where its four values lie in the input.
struct WindowPlace {
  int sample, y, x;

  __device__ WindowPlace(int index, const Windows& windows) {
    sample = static_cast<int>(windows.a_sample.quotient(static_cast<uint32_t>(index)));
    const int rest = index - sample * static_cast<int>(windows.a_sample.divisor);
    y = static_cast<int>(windows.a_row.quotient(static_cast<uint32_t>(rest)));
    x = rest - y * static_cast<int>(windows.a_row.divisor);
  }
  // Of a window's first value; the others lie one pixel and one row on. 32 bits: a lane has fewer values.
  __device__ int pixel(const NormArgs& args) const {
    return (sample * args.height + y * 2) * args.width + x * 2;
  }
};

// The slice of channels and the windows that a pass is launched over. Threads own kWidth channels.
template <int kWidth>
struct Launch {
  int parts;
  Slice slice;
  dim3 grid;

  explicit Launch(const NormArgs& args)
      : parts(num_parts(args)),
        slice(slice_of(args.channels / kWidth)),
        grid(static_cast<unsigned>(parts), static_cast<unsigned>(args.lanes),
             static_cast<unsigned>(slice.slices)) {}
};

inline Windows windows_of(int high, int wide) {
  const auto count = [](int size) { return static_cast<uint32_t>(std::max(1, size)); };
  return {Divisor(count(wide)), Divisor(count(high * wide))};
}

// How many channels a thread owns: 16 bytes of them, half as many in passes that need many coefficients a
// channel and would else lack registers, one where channels do not allow it.
template <class T>
inline constexpr int kVector = 16 / sizeof(T);
template <class T>
inline constexpr int kHalfVector = kVector<T> > 4 ? kVector<T> / 2 : kVector<T>;

}  // namespace espalier::lanes::batch_norm
