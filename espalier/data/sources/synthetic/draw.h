// What the synthetic sources draw with: random numbers of one sample, and shapes.
//
// Integers only. Floating point would come out differently where a compiler contracts a*b+c or a libm rounds
// sin() its own way; so the same seed gives the same bytes on every machine and build.
// Lengths are in 1/256 of a pixel, colours 0 to 255, and a shape's own coordinates in 1/4096 of its radius.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "espalier/core/machine/parallel.h"
#include "espalier/core/progress.h"
#include "espalier/core/random/philox.h"

namespace espalier::data {

inline constexpr int64_t kPixel = 256;
inline constexpr int64_t kRadius = 4096;  // a shape lies within this distance of its centre

// What a stream of random numbers is for; two streams of one sample never meet.
enum class DrawStream : uint32_t { kScene = 0, kNoise = 1, kDepth = 2, kOrth = 3 };

// The random numbers of one sample: a function of (seed, source, split, sample, stream) alone.
class SampleRandom {
 public:
  struct Key {
    uint64_t seed = 0;
    uint32_t source = 0;  // which synthetic source: their samples share nothing
    uint32_t split = 0;   // 0 train, 1 test
    uint32_t sample = 0;
  };

  SampleRandom(const Key& key, DrawStream stream)
      : key_(key), place_((key.source << 16) | (key.split << 8) | static_cast<uint32_t>(stream)) {}

  uint32_t next() {
    if (used_ == 4) {
      words_ =
          philox4x32(key_.seed, block_++, key_.sample, place_, static_cast<uint32_t>(Purpose::kSynthetic));
      used_ = 0;
    }
    return words_[used_++];
  }

  // In [low, high], both included.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(next(), static_cast<uint32_t>(high - low + 1)));
  }

 private:
  Key key_;
  uint32_t place_;
  uint32_t block_ = 0;
  Words4 words_{};
  int used_ = 4;
};

// A place, a size and a rotation. The rotation is the rational one, cos = (1 - t^2) / (1 + t^2) and
// sin = 2t / (1 + t^2) with t = k / 1024: 45 degrees either way, then a quarter turn: no sine needed.
class Pose {
 public:
  struct Placement {
    int64_t x = 0;  // the centre's
    int64_t y = 0;
    int64_t radius = 0;  // at least one
  };

  Pose(const Placement& at, SampleRandom& random) : at_(at) {
    constexpr int64_t kT = 1024;
    constexpr int64_t kTan22 = 424;  // 1024 * tan(22.5 degrees)
    const int64_t t = random.between(-kTan22, kTan22);
    const int64_t length = kT * kT + t * t;
    int64_t cosine = ((kT * kT - t * t) << kShift) / length;
    int64_t sine = ((2 * t * kT) * (int64_t{1} << kShift)) / length;
    const int64_t quarter = random.between(0, 3);
    if (quarter >= 2) {
      cosine = -cosine;
      sine = -sine;
    }
    if (quarter % 2 == 1) {
      const int64_t old_cosine = cosine;
      cosine = -sine;
      sine = old_cosine;
    }
    cosine_ = cosine * kRadius / at.radius;
    sine_ = sine * kRadius / at.radius;
  }

  struct Point {
    int64_t u = 0;
    int64_t v = 0;
  };

  // From the image's coordinates to the shape's own.
  Point to_shape(int64_t x, int64_t y) const {
    const int64_t dx = x - at_.x;
    const int64_t dy = y - at_.y;
    return {(dx * cosine_ + dy * sine_) >> kShift, (dy * cosine_ - dx * sine_) >> kShift};
  }

  const Placement& placement() const { return at_; }

 private:
  static constexpr int kShift = 20;
  Placement at_;
  int64_t cosine_ = 0;  // times kRadius / radius, in 1/2^kShift
  int64_t sine_ = 0;
};

// Where the shape at `pose` may lie: calls body(y, x) for the pixels of its square within the picture.
template <class Body>
void for_each_pixel(const Pose& pose, int64_t height, int64_t width, const Body& body) {
  const auto& place = pose.placement();
  const int64_t top = std::clamp<int64_t>((place.y - place.radius) / kPixel - 1, 0, height);
  const int64_t bottom = std::clamp<int64_t>((place.y + place.radius) / kPixel + 2, 0, height);
  const int64_t left = std::clamp<int64_t>((place.x - place.radius) / kPixel - 1, 0, width);
  const int64_t right = std::clamp<int64_t>((place.x + place.radius) / kPixel + 2, 0, width);
  for (int64_t y = top; y < bottom; ++y) {
    for (int64_t x = left; x < right; ++x) body(y, x);
  }
}

// A picture being painted, in place: its memory is the dataset's own.
template <int kChannels>
class Canvas {
 public:
  using Colour = std::array<int64_t, kChannels>;  // 0 to 255 each

  Canvas(uint8_t* pixels, int64_t height, int64_t width) : pixels_(pixels), height_(height), width_(width) {}

  int64_t height() const { return height_; }
  int64_t width() const { return width_; }

  // From one colour to another, along a random direction.
  void fill_gradient(const Colour& from, const Colour& to, SampleRandom& random) {
    const int64_t across = random.between(-256, 256);
    const int64_t down = 256 - std::abs(across);
    const int64_t low = std::min<int64_t>(0, across * width_);
    const int64_t range = std::abs(across) * width_ + down * height_;  // at least 256
    for (int64_t y = 0; y < height_; ++y) {
      for (int64_t x = 0; x < width_; ++x) {
        const int64_t share = (across * x + down * y - low) * 256 / range;
        for (size_t c = 0; c < kChannels; ++c) {
          at(y, x)[c] = static_cast<uint8_t>(from[c] + (to[c] - from[c]) * share / 256);
        }
      }
    }
  }

  // Paints where inside(point) says so. Each pixel is looked at in 2x2 places, so that edges are soft.
  template <class Inside>
  void paint(const Pose& pose, const Colour& colour, const Inside& inside) {
    for_each_pixel(pose, height_, width_, [&](int64_t y, int64_t x) {
      int covered = 0;
      for (const int64_t oy : {kPixel / 4, 3 * kPixel / 4}) {
        for (const int64_t ox : {kPixel / 4, 3 * kPixel / 4}) {
          covered += inside(pose.to_shape(x * kPixel + ox, y * kPixel + oy)) ? 1 : 0;
        }
      }
      if (covered == 0) return;
      uint8_t* pixel = at(y, x);
      for (size_t c = 0; c < kChannels; ++c) {
        pixel[c] = static_cast<uint8_t>((pixel[c] * (4 - covered) + colour[c] * covered) / 4);
      }
    });
  }

  // The sum of two random bytes, centred, on every value: a triangular distribution of about +-amplitude.
  void add_noise(int64_t amplitude, SampleRandom& noise) {
    const int64_t num_values = height_ * width_ * kChannels;
    uint32_t word = 0;
    for (int64_t i = 0; i < num_values; ++i) {
      word = i % 2 == 0 ? noise.next() : word >> 16;
      const auto sum = static_cast<int64_t>((word & 0xFF) + ((word >> 8) & 0xFF)) - 255;
      pixels_[i] = static_cast<uint8_t>(std::clamp<int64_t>(pixels_[i] + sum * amplitude / 256, 0, 255));
    }
  }

 private:
  uint8_t* at(int64_t y, int64_t x) { return pixels_ + (y * width_ + x) * kChannels; }

  uint8_t* pixels_;  // [H,W,C] u8
  int64_t height_;
  int64_t width_;
};

// Calls body(i) for every sample, on all cores.
template <class Body>
void draw_samples(int64_t num_samples, std::string_view what, const Progress& progress, const Body& body) {
  constexpr int64_t kGrain = 16;  // a few milliseconds to 0.1 s of drawing, by size
  std::mutex mutex;
  int64_t done = 0;
  if (progress) progress(what, 0, num_samples);
  parallel_ranges(num_samples, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i);
    const std::lock_guard lock(mutex);
    done += end - begin;
    if (progress) progress(what, done, num_samples);
  });
}

}  // namespace espalier::data
