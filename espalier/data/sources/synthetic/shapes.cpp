#include "espalier/data/sources/synthetic/shapes.h"

#include <algorithm>
#include <cstdlib>

namespace espalier::data {
namespace {

using Colour = Canvas<3>::Colour;

// n hundredths of the radius.
constexpr int64_t part(int64_t n) {
  return kRadius * n / 100;
}

bool in_disc(const Pose::Point& p, int64_t centre_u, int64_t radius) {
  const int64_t u = p.u - centre_u;
  return u * u + p.v * p.v <= radius * radius;
}

bool in_box(const Pose::Point& p, int64_t half_u, int64_t half_v) {
  return std::abs(p.u) <= half_u && std::abs(p.v) <= half_v;
}

bool in_triangle(const Pose::Point& p) {
  constexpr int64_t kCos30 = 3547;  // times 4096
  const int64_t slanted = kCos30 * std::abs(p.u) / 4096;
  return -p.v <= part(48) && slanted + p.v / 2 <= part(48);
}

// Five lines at the sides of a pentagon; the star is where at most one of them is crossed.
bool in_star(const Pose::Point& p) {
  constexpr std::array<std::array<int64_t, 2>, 5> kNormals = {
      // at 90 degrees and every 72 further, times 4096
      {{0, 4096}, {-3896, 1266}, {-2408, -3314}, {2408, -3314}, {3896, 1266}}};
  int crossed = 0;
  for (const auto& normal : kNormals) crossed += normal[0] * p.u + normal[1] * p.v > part(30) * 4096 ? 1 : 0;
  return crossed <= 1;
}

Colour random_colour(SampleRandom& random) {
  return {random.between(20, 235), random.between(20, 235), random.between(20, 235)};
}

int64_t brightness(const Colour& colour) {
  return (2 * colour[0] + 5 * colour[1] + colour[2]) / 8;
}

// A colour lighter than all of the ground or darker than all of it: by chance, or where only one leaves room.
Colour shape_colour(const Colour& from, const Colour& to, SampleRandom& random) {
  constexpr int64_t kContrast = 60;
  const int64_t low = std::min(brightness(from), brightness(to));
  const int64_t high = std::max(brightness(from), brightness(to));
  const bool is_lighter = low < 100 || (high <= 155 && random.between(0, 1) == 0);
  Colour colour;
  for (int i = 0; i < 64; ++i) {
    colour = random_colour(random);
    if (is_lighter ? brightness(colour) >= high + kContrast : brightness(colour) <= low - kContrast)
      return colour;
  }
  // The colours drawn above leave room for all but a few grounds: there, white or black.
  colour.fill(is_lighter ? 255 : 0);
  return colour;
}

// A small disc or bar of any colour, anywhere: what is bright at one place must not give the class away.
void paint_distractor(Canvas<3>& canvas, int64_t side, SampleRandom& random) {
  const int64_t radius = std::max<int64_t>(1, random.between(side * 3 / 100, side * 8 / 100));
  const Pose pose({.x = random.between(0, canvas.width() * kPixel),
                   .y = random.between(0, canvas.height() * kPixel),
                   .radius = radius},
                  random);
  const Colour colour = random_colour(random);
  const bool is_disc = random.between(0, 1) == 0;
  canvas.paint(pose, colour, [&](const Pose::Point& p) {
    return is_disc ? in_disc(p, 0, kRadius) : in_box(p, kRadius, part(35));
  });
}

}  // namespace

bool is_inside(Shape shape, const Pose::Point& p) {
  switch (shape) {
    case Shape::kDisc:
      return in_disc(p, 0, part(80));
    case Shape::kRing:
      return in_disc(p, 0, part(95)) && !in_disc(p, 0, part(60));
    case Shape::kTriangle:
      return in_triangle(p);
    case Shape::kCross:
      return in_box(p, part(95), part(24)) || in_box(p, part(24), part(95));
    case Shape::kStar:
      return in_star(p);
    case Shape::kBar:
      return in_box(p, part(95), part(28));
    case Shape::kStripes:  // three bars
      return in_box(p, part(70), part(70)) && (std::abs(p.v) <= part(14) || std::abs(p.v) >= part(42));
    case Shape::kDots:  // one in each corner of a square
      return in_disc({std::abs(p.u) - part(47), std::abs(p.v) - part(47)}, 0, part(33));
    case Shape::kChecker:  // two of four squares
      return in_box(p, part(70), part(70)) && (p.u < 0) == (p.v < 0);
    case Shape::kTarget:
      return in_disc(p, 0, part(98)) && (!in_disc(p, 0, part(70)) || in_disc(p, 0, part(38)));
  }
  return false;
}

Pose random_pose(int64_t height, int64_t width, SampleRandom& random) {
  const int64_t side = std::min(height, width) * kPixel;
  const int64_t shift = side / 10;
  return Pose({.x = width * kPixel / 2 + random.between(-shift, shift),
               .y = height * kPixel / 2 + random.between(-shift, shift),
               .radius = random.between(side * 26 / 100, side * 38 / 100)},
              random);
}

void paint_scene(Shape shape, const Pose& pose, SampleRandom& random, SampleRandom& noise,
                 Canvas<3>& canvas) {
  const int64_t side = std::min(canvas.height(), canvas.width()) * kPixel;
  const Colour from = random_colour(random);
  Colour to = random_colour(random);
  // A quarter of the way: a ground that runs through all colours would hide every shape.
  for (size_t c = 0; c < 3; ++c) to[c] = (3 * from[c] + to[c]) / 4;
  canvas.fill_gradient(from, to, random);
  for (int64_t n = random.between(2, 4); n > 0; --n) paint_distractor(canvas, side, random);
  canvas.paint(pose, shape_colour(from, to, random),
               [&](const Pose::Point& p) { return is_inside(shape, p); });
  canvas.add_noise(random.between(5, 50), noise);
}

}  // namespace espalier::data
