#include "espalier/core/random/permutation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

namespace espalier {
namespace {

Permutation permutation(uint64_t key, uint64_t epoch, uint64_t size) {
  return {key, epoch, size, Purpose::kPermutation};
}

TEST(Philox, GivesThePublishedKnownAnswers) {
  // From the authors' own test vectors (Random123, kat_vectors, philox4x32-10).
  const Words4 zero = philox4x32(0, 0, 0, 0, 0);
  EXPECT_EQ(zero[0], 0x6627e8d5u);
  EXPECT_EQ(zero[1], 0xe169c58du);
  EXPECT_EQ(zero[2], 0xbc57ac4cu);
  EXPECT_EQ(zero[3], 0x9b00dbd8u);
  const Words4 ones = philox4x32(~uint64_t{0}, ~0u, ~0u, ~0u, ~0u);
  EXPECT_EQ(ones[0], 0x408f276du);
  EXPECT_EQ(ones[1], 0x41c83b0eu);
  EXPECT_EQ(ones[2], 0xa20bc7c6u);
  EXPECT_EQ(ones[3], 0x6d5451fdu);
}

TEST(Permutation, IsABijectionForEverySizeUpTo3000) {
  std::vector<uint64_t> seen(3000, 0);
  for (uint64_t size = 1; size <= 3000; ++size) {
    const Permutation order = permutation(size * 0x9E3779B97F4A7C15u, size, size);
    for (uint64_t i = 0; i < size; ++i) {
      const uint64_t value = order(i);
      ASSERT_LT(value, size);
      ASSERT_NE(seen[value], size) << "size " << size << " gives " << value << " twice";
      seen[value] = size;
    }
  }
}

TEST(Permutation, IsABijectionForLargeSizes) {
  for (const uint64_t size : {50000u, 65536u, 65537u, 1000003u}) {
    std::vector<bool> seen(size);
    const Permutation order = permutation(3, 1, size);
    for (uint64_t i = 0; i < size; ++i) {
      ASSERT_FALSE(seen[order(i)]);
      seen[order(i)] = true;
    }
  }
}

TEST(Permutation, AnswersAtAnyPositionOfAHugeSize) {
  const uint64_t size = (uint64_t{1} << 61) + 12345;
  const Permutation order = permutation(9, 2, size);
  for (const uint64_t position : {uint64_t{0}, uint64_t{1}, size / 2, size - 1})
    EXPECT_LT(order(position), size);
}

// The same numbers on every build and machine: written down once.
TEST(Permutation, GivesTheSameOrderOnEveryBuild) {
  const auto first = [](uint64_t key, uint64_t epoch, uint64_t size) {
    std::vector<uint64_t> values;
    for (uint64_t i = 0; i < 6; ++i) values.push_back(permutation(key, epoch, size)(i));
    return values;
  };
  EXPECT_EQ(first(0, 0, 10), (std::vector<uint64_t>{9, 0, 2, 1, 5, 6}));
  EXPECT_EQ(first(42, 7, 50000), (std::vector<uint64_t>{2913, 35537, 42783, 23085, 2181, 21181}));
  EXPECT_EQ(first(~uint64_t{0}, 1, 1000003),
            (std::vector<uint64_t>{863511, 873129, 835997, 415986, 775359, 940506}));
}

// Chi-square of where sample 0 lands, over many epochs, in `bins` bins: its mean is bins - 1, its deviation
// sqrt(2 (bins - 1)).
TEST(Permutation, SendsASampleAnywhereWithEqualChance) {
  for (const uint64_t size : {10u, 60u, 1000u, 50000u}) {
    const uint64_t bins = std::min<uint64_t>(size, 50), draws = 20000;
    for (const uint64_t position : {uint64_t{0}, uint64_t{1}, size - 1}) {
      std::vector<double> count(bins);
      for (uint64_t epoch = 0; epoch < draws; ++epoch)
        count[permutation(11, epoch, size)(position) * bins / size] += 1;
      double chi2 = 0;
      for (uint64_t b = 0; b < bins; ++b) {
        const uint64_t width =
            (b + 1) * size / bins + ((b + 1) * size % bins != 0) - (b * size / bins + (b * size % bins != 0));
        const double expected = static_cast<double>(draws * width) / static_cast<double>(size);
        chi2 += (count[b] - expected) * (count[b] - expected) / expected;
      }
      const double degrees = static_cast<double>(bins - 1);
      EXPECT_LT(chi2, degrees + 5 * std::sqrt(2 * degrees)) << "size " << size << " position " << position;
    }
  }
}

TEST(Permutation, PartsNeighboursAndEpochs) {
  const uint64_t size = 50000;
  const Permutation now = permutation(5, 0, size), next = permutation(5, 1, size);
  int64_t neighbours = 0, fixed = 0;
  double sum = 0;
  for (uint64_t i = 0; i + 1 < size; ++i) {
    const auto a = static_cast<int64_t>(now(i)), b = static_cast<int64_t>(now(i + 1));
    neighbours += std::abs(a - b) == 1;
    fixed += now(i) == next(i);
    sum += (static_cast<double>(now(i)) / size - 0.5) * (static_cast<double>(next(i)) / size - 0.5);
  }
  // A random order has 2 neighbours that stayed and 1 place in common on average (Poisson).
  EXPECT_LT(neighbours, 12);
  EXPECT_LT(fixed, 10);
  const double correlation = 12 * sum / static_cast<double>(size);
  EXPECT_LT(std::abs(correlation), 5 / std::sqrt(static_cast<double>(size)));
}

}  // namespace
}  // namespace espalier
