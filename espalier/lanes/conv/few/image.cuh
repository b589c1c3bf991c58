// 3x3 convolutions with stride 1 and a padding of 1, of 8, 16 or 32 channels and filters, from whole images
// in shared memory.
//
// A block takes a few images of one lane at a time, each with a border of zeros, as planes of eight channels:
// a pixel of a plane is one 16-byte chunk. So every value is read from global memory once, and the nine taps
// of a filter are nine offsets in shared memory, at which matrix fragments are loaded: eight consecutive
// pixels of a row fall into different banks. While one group of images is worked on, the next one is copied.
//
// The products of vector.cuh, with k = (tap, channel) as chunks: chunk q = tap * planes + plane.
// Deterministic: a sum's order depends on the lane's shape alone.
#pragma once

#include <algorithm>
#include <type_traits>

#include "espalier/core/random/divisor.h"
#include "espalier/lanes/conv/few/channels.h"
#include "espalier/lanes/conv/kernel.h"
#include "espalier/lanes/mma.cuh"

namespace espalier::lanes::image_conv {

constexpr int kThreads = 256;
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
constexpr int kChunk = 8;  // values of 16 bytes
constexpr int kTaps = 9;
constexpr int kStageBytes = 26 << 10;      // what a group of images is to take at most
constexpr int kMostStageBytes = 40 << 10;  // where it is a single one

// How a group of images lies in shared memory. Sizes in chunks.
struct Stage {
  int32_t images;  // in a group
  int32_t pixels;  // in an image
  int32_t pitch;   // from row to row
  int32_t image;   // from image to image
  int32_t plane;   // from plane to plane
  Divisor a_row, a_image;
};

inline int bytes_of_image(int height, int width, int planes) {
  return (height + 2) * (width + 2) * planes * 16;
}

inline Stage stage_of(int height, int width, int planes, int batch, int bytes = kStageBytes) {
  Stage stage;
  // As many as fit, dealt out evenly: a last group of one image would take as long as a full one.
  const int fitting = std::max(1, bytes / bytes_of_image(height, width, planes));
  const int groups = (std::max(batch, 1) + fitting - 1) / fitting;
  stage.images = (std::max(batch, 1) + groups - 1) / groups;
  stage.pixels = height * width;
  stage.pitch = width + 2;
  stage.image = (height + 2) * stage.pitch;
  stage.plane = stage.images * stage.image;
  stage.a_row = Divisor(static_cast<uint32_t>(width));
  stage.a_image = Divisor(static_cast<uint32_t>(stage.pixels));
  return stage;
}

__host__ __device__ inline int bytes_of(const Stage& stage, int planes) {
  return stage.plane * planes * 16;
}

// Where the window of a pixel of the group begins, as its taps count from: one row and one column before it.
__device__ inline int place_of(const Stage& stage, int width, int pixel) {
  const int image = static_cast<int>(stage.a_image.quotient(static_cast<uint32_t>(pixel)));
  const int rest = pixel - image * stage.pixels;
  const int row = static_cast<int>(stage.a_row.quotient(static_cast<uint32_t>(rest)));
  return image * stage.image + row * stage.pitch + rest - row * width;
}

// Zeros in everything, so that borders have them.
__device__ inline void clear(uint8_t* shared, int bytes) {
  for (int i = threadIdx.x * 16; i < bytes; i += kThreads * 16)
    *reinterpret_cast<uint4*>(shared + i) = make_uint4(0, 0, 0, 0);
}

// Begins to copy a group: `images` of them from `from` on, zeros for those that are not there.
template <class T, int kPlanes>
__device__ void fetch_images(const Stage& stage, int width, const T* from, int images, uint8_t* to) {
  const int chunks = stage.images * stage.pixels * kPlanes, valid = images * stage.pixels * kPlanes;
  for (int c = threadIdx.x; c < chunks; c += kThreads) {
    const int pixel = c / kPlanes, plane = c % kPlanes;
    const int place = place_of(stage, width, pixel) + stage.pitch + 1;
    copy_chunk(to + (plane * stage.plane + place) * 16,
               from + (c < valid ? static_cast<int64_t>(c) * kChunk : 0), c < valid);
  }
}

// From the chunk that place_of() names to the one that chunk q of a window reads. is_data_grad: taps lead
// from the input to the outputs that read it.
template <int kPlanes>
__device__ inline int offset_of(const Stage& stage, int q, bool is_data_grad) {
  const int tap = q / kPlanes, plane = q % kPlanes;
  const int r = is_data_grad ? 2 - tap / 3 : tap / 3, s = is_data_grad ? 2 - tap % 3 : tap % 3;
  return plane * stage.plane + r * stage.pitch + s;
}

// What a thread has of one row of a result: 2 kTiles consecutive columns.
template <class T, int kTiles>
__device__ inline void store_row(T* to, const float (&sums)[kTiles][4], int half, const float* bias) {
  struct alignas(kTiles * 4 > 16 ? 16 : kTiles * 4) Row {
    uint32_t word[kTiles];
  } row;
#pragma unroll
  for (int j = 0; j < kTiles; ++j) {
    float low = sums[j][half * 2], high = sums[j][half * 2 + 1];
    if (bias != nullptr) {
      low += bias[2 * j];
      high += bias[2 * j + 1];
    }
    row.word[j] = pack<T>(low, high);
  }
  *reinterpret_cast<Row*>(to) = row;
}

// Calls launch with the eights of a number of channels that is_few(), as a constant.
template <class Launch>
cudaError_t for_few(int channels, const Launch& launch) {
  if (channels == 8) return launch(std::integral_constant<int, 1>());
  if (channels == 16) return launch(std::integral_constant<int, 2>());
  return launch(std::integral_constant<int, 4>());
}

// Calls launch with a value of the narrow type that `type` names.
template <class Launch>
cudaError_t for_narrow(KernelType type, const Launch& launch) {
  return type == KernelType::kBf16 ? launch(__nv_bfloat16{}) : launch(__half{});
}

}  // namespace espalier::lanes::image_conv
