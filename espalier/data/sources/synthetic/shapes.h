// The shapes that the synthetic sources draw, and how a coloured picture of one is made.
//
// Every shape equals its own mirror image up to rotation, so that random flips keep the class. Colours say
// nothing about it: a shape may be lighter or darker than its ground.
#pragma once

#include <array>
#include <cstdint>

#include "espalier/data/sources/synthetic/draw.h"

namespace espalier::data {

enum class Shape : uint8_t {
  kDisc,
  kRing,
  kTriangle,
  kCross,
  kStar,
  kBar,
  kStripes,
  kDots,
  kChecker,
  kTarget
};
inline constexpr std::array<const char*, 10> kShapeNames = {
    "disc", "ring", "triangle", "cross", "star", "bar", "stripes", "dots", "checker", "target"};

// Whether a point, in the shape's own coordinates, belongs to it.
bool is_inside(Shape shape, const Pose::Point& point);

// A pose near the middle of a picture, as large as a share of its shorter side.
Pose random_pose(int64_t height, int64_t width, SampleRandom& random);

// A ground of two similar colours, a few small distractors, the shape in a colour that stands out, and noise.
void paint_scene(Shape shape, const Pose& pose, SampleRandom& random, SampleRandom& noise, Canvas<3>& canvas);

}  // namespace espalier::data
