#include "espalier/grow/blend/cpu_rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

namespace espalier::grow {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// 1 + tanh((x + 1) - 1): a product with h = 1 and weight 1.
std::vector<float> one_plus_tanh(const std::vector<float>& x) {
  std::vector<float> ones(x.size(), 1.0f), s(x.size()), out(x.size());
  for (size_t i = 0; i < x.size(); ++i) s[i] = x[i] + 1;
  blend_rows<float>().blend(BlendRule::kProduct, 1, ones.data(), s.data(), std::ssize(x), out.data());
  return out;
}

TEST(BlendRows, MultiplyByATanhWithinARoundingOfTheLibrarys) {
  std::vector<float> x;
  for (float value = -12; value < 12; value += 0x1p-12f) x.push_back(value);
  const std::vector<float> got = one_plus_tanh(x);
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = 1 + std::tanh(static_cast<double>((x[i] + 1) - 1));
    ASSERT_NEAR(got[i], want, 2 * 0x1p-24 * std::max(1.0, want)) << x[i];
  }
}

// Small values keep their digits: with h = 0 in the difference and a weight that is large, w t is all there
// is.
TEST(BlendRows, KeepTheDigitsOfASmallTanh) {
  constexpr float kLarge = 0x1p40f;
  for (float x = 0x1p-30f; x < 4; x *= 1.01f) {
    const float h = 0x1p-60f, s = x;
    float out = 0;
    blend_rows<float>().blend(BlendRule::kProduct, kLarge, &h, &s, 1, &out);
    const double t = std::tanh(static_cast<double>(s) - static_cast<double>(h));
    const double want = static_cast<double>(h) * (1 + static_cast<double>(kLarge) * t);
    EXPECT_NEAR(out, want, 4 * 0x1p-24 * want) << x;
  }
}

TEST(BlendRows, PassANanAndSaturateAtTheInfinities) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> got = one_plus_tanh({nan, kInfinity, -kInfinity, 100, -100});
  EXPECT_TRUE(std::isnan(got[0]));
  EXPECT_EQ(got[1], 2);
  EXPECT_EQ(got[2], 0);
  EXPECT_EQ(got[3], 2);
  EXPECT_EQ(got[4], 0);
}

// Wherever a value stands in a row, and however long the row is.
TEST(BlendRows, GiveAValueTheSameBitsAtEveryPlace) {
  for (const BlendRule rule : {BlendRule::kSum, BlendRule::kProduct})
    for (const int64_t n : {1, 15, 16, 63, 64, 65, 200}) {
      const std::vector<float> h(static_cast<size_t>(n), 0.7f), s(static_cast<size_t>(n), -0.45f),
          grad(static_cast<size_t>(n), 1.3f);
      std::vector<float> out(h.size()), grad_h(h.size()), grad_s(h.size());
      blend_rows<float>().blend(rule, 0.3f, h.data(), s.data(), n, out.data());
      blend_rows<float>().blend_back(rule, 0.3f, grad.data(), h.data(), s.data(), n, grad_h.data(),
                                     grad_s.data());
      float one = 0, one_h = 0, one_s = 0;
      blend_rows<float>().blend(rule, 0.3f, h.data(), s.data(), 1, &one);
      blend_rows<float>().blend_back(rule, 0.3f, grad.data(), h.data(), s.data(), 1, &one_h, &one_s);
      for (size_t i = 0; i < h.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(one)) << i << " of " << n;
        EXPECT_EQ(std::bit_cast<uint32_t>(grad_h[i]), std::bit_cast<uint32_t>(one_h)) << i << " of " << n;
        EXPECT_EQ(std::bit_cast<uint32_t>(grad_s[i]), std::bit_cast<uint32_t>(one_s)) << i << " of " << n;
      }
    }
}

}  // namespace
}  // namespace espalier::grow
