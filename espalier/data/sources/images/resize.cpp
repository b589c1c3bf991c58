#include "espalier/data/sources/images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "espalier/core/error.h"

namespace espalier::data {
namespace {

// The weights of one axis: value i of the output is the sum over k of weights[i * stride + k] times value
// first[i] + k of the input, for k < count[i]; fixed point with kWeightBits, so the same bits on every
// machine.
constexpr int kWeightBits = 22;  // 8 bits of value and 22 of weight fit 32 bits with a sign and room to round

struct AxisWeights {
  std::vector<int64_t> first;    // [out]
  std::vector<int64_t> count;    // [out]
  std::vector<int32_t> weights;  // [out,stride]
  int64_t stride = 0;
};

// The triangle filter, stretched by the scale when shrinking (that is the antialiasing), computed as Pillow
// does.
AxisWeights axis_weights(int64_t in, int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  AxisWeights axis;
  axis.stride = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  axis.weights.resize(static_cast<size_t>(out * axis.stride));
  std::vector<double> exact(static_cast<size_t>(axis.stride));
  for (int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const auto first = static_cast<int64_t>(std::max(0.0, center - support + 0.5));
    const auto end = std::min(in, static_cast<int64_t>(center + support + 0.5));
    double sum = 0.0;
    for (int64_t k = 0; k < end - first; ++k) {
      const double distance = std::abs((static_cast<double>(first + k) - center + 0.5) / support);
      exact[static_cast<size_t>(k)] = std::max(0.0, 1.0 - distance);
      sum += exact[static_cast<size_t>(k)];
    }
    for (int64_t k = 0; k < end - first; ++k) {
      axis.weights[static_cast<size_t>(i * axis.stride + k)] =
          static_cast<int32_t>(0.5 + exact[static_cast<size_t>(k)] / sum * (1 << kWeightBits));
    }
    axis.first.push_back(first);
    axis.count.push_back(end - first);
  }
  return axis;
}

// Resizes the middle axis: in [outer,in_size,inner] to out [outer,out_size,inner], all u8.
void resize_axis(const uint8_t* in, int64_t outer, int64_t in_size, int64_t inner, int64_t out_size,
                 uint8_t* out) {
  const AxisWeights axis = axis_weights(in_size, out_size);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < out_size; ++i) {
      const uint8_t* source = in + (o * in_size + axis.first[static_cast<size_t>(i)]) * inner;
      const int32_t* weights = axis.weights.data() + i * axis.stride;
      const int64_t count = axis.count[static_cast<size_t>(i)];
      uint8_t* target = out + (o * out_size + i) * inner;
      for (int64_t j = 0; j < inner; ++j) {
        int32_t sum = 1 << (kWeightBits - 1);
        for (int64_t k = 0; k < count; ++k) sum += weights[k] * source[k * inner + j];
        target[j] = static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
      }
    }
  }
}

void resize_nearest(const ImageShape& shape, const std::byte* in, ImageSize size, std::byte* out) {
  const auto pixel_bytes = static_cast<size_t>(shape.channels * bytes_of(shape.type));
  for (int64_t y = 0; y < size.height; ++y) {
    const int64_t from_y = (2 * y + 1) * shape.height / (2 * size.height);  // the pixel under our centre
    for (int64_t x = 0; x < size.width; ++x, out += pixel_bytes) {
      const int64_t from_x = (2 * x + 1) * shape.width / (2 * size.width);
      std::memcpy(out, in + static_cast<size_t>(from_y * shape.width + from_x) * pixel_bytes, pixel_bytes);
    }
  }
}

}  // namespace

void resize_into(const ImageShape& shape, std::span<const std::byte> in, ImageSize size,
                 std::span<std::byte> out) {
  ImageShape resized = shape;
  resized.height = size.height;
  resized.width = size.width;
  for (const ImageShape& s : {shape, resized}) {
    if (s.height < 1 || s.width < 1 || s.height > kMaxImageSide || s.width > kMaxImageSide ||
        s.height * s.width > kMaxImagePixels) {
      fail("resize: {}x{} (height x width) is out of range: 1 to {} a side, at most {} pixels", s.height,
           s.width, kMaxImageSide, kMaxImagePixels);
    }
  }
  if (in.size() != static_cast<size_t>(shape.size_bytes()) ||
      out.size() != static_cast<size_t>(resized.size_bytes())) {
    fail("resize: want {} bytes in and {} out, got {} and {}", shape.size_bytes(), resized.size_bytes(),
         in.size(), out.size());
  }
  if (shape.type == SampleType::kU16) return resize_nearest(shape, in.data(), size, out.data());
  if (shape.height * size.width > kMaxImagePixels) {
    fail("resize: {}x{} to {}x{} (height x width) passes through more than {} pixels", shape.height,
         shape.width, size.height, size.width, kMaxImagePixels);
  }
  std::vector<uint8_t> rows(static_cast<size_t>(shape.height * size.width * shape.channels));  // [H,out W,C]
  resize_axis(reinterpret_cast<const uint8_t*>(in.data()), shape.height, shape.width, shape.channels,
              size.width, rows.data());
  resize_axis(rows.data(), 1, shape.height, size.width * shape.channels, size.height,
              reinterpret_cast<uint8_t*>(out.data()));
}

}  // namespace espalier::data
