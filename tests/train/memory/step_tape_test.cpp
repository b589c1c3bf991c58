#include "espalier/train/memory/step_tape.h"

#include <gtest/gtest.h>

#include "espalier/train/memory/allowances.h"

namespace espalier::train {
namespace {

using allowance::kMiB;

TEST(CachedBlocks, TakeFromTheDriverWhatTheAllocatorTakes) {
  CachedBlocks blocks;
  blocks.allocate(100);  // takes 2 MiB
  EXPECT_EQ(blocks.reserved_bytes(), 2 * kMiB);
  EXPECT_EQ(blocks.peak_bytes(), 512);
  blocks.allocate(kMiB);  // into the same
  EXPECT_EQ(blocks.reserved_bytes(), 2 * kMiB);
  blocks.allocate(3 * kMiB);  // takes 20 MiB
  EXPECT_EQ(blocks.reserved_bytes(), 22 * kMiB);
  blocks.allocate(9 * kMiB);  // into the same
  EXPECT_EQ(blocks.reserved_bytes(), 22 * kMiB);
  blocks.allocate(31 * kMiB);  // by itself
  EXPECT_EQ(blocks.reserved_bytes(), 54 * kMiB);
  EXPECT_EQ(blocks.allocate(0), 0);
}

TEST(CachedBlocks, AreUsedAgainTheSmallestThatFitsFirst) {
  CachedBlocks blocks;
  const int64_t large = blocks.allocate(64 * kMiB), small = blocks.allocate(32 * kMiB);
  blocks.free(large);
  blocks.free(small);
  const int64_t first = blocks.allocate(30 * kMiB);  // takes from the 32
  const int64_t second = blocks.allocate(64 * kMiB);
  EXPECT_EQ(blocks.reserved_bytes(), 96 * kMiB);
  blocks.free(second);
  blocks.free(first);
  // The 64 is cut in two, and whole again once both are free.
  const int64_t left = blocks.allocate(33 * kMiB), right = blocks.allocate(31 * kMiB);
  EXPECT_EQ(blocks.reserved_bytes(), 96 * kMiB);
  blocks.free(left);
  blocks.free(right);
  blocks.allocate(64 * kMiB);
  EXPECT_EQ(blocks.reserved_bytes(), 96 * kMiB);
  EXPECT_EQ(blocks.peak_bytes(), 96 * kMiB);
}

// Two of 32 lie apart: they are no 64.
TEST(CachedBlocks, ServeNothingLargerThanTheyAre) {
  CachedBlocks blocks;
  const int64_t one = blocks.allocate(32 * kMiB), other = blocks.allocate(32 * kMiB);
  blocks.free(one);
  blocks.free(other);
  blocks.allocate(64 * kMiB);
  EXPECT_EQ(blocks.peak_bytes(), 64 * kMiB);
  EXPECT_EQ(blocks.reserved_bytes(), 128 * kMiB);
}

// Forward 30 + 50 + 10 in passing; back 30 + 50, a gradient of 50 handed on and 70 of parameters; then 30,
// that gradient, 20 handed on, 40 in passing, and all gradients of parameters.
TEST(StepTape, PeaksWhereMostIsHeldAtOnce) {
  StepTape tape;
  tape.add({.held = {30 * kMiB}, .gradient = 20 * kMiB, .backward = {40 * kMiB}, .parameters = {20 * kMiB}});
  tape.add({.held = {50 * kMiB}, .forward = {10 * kMiB}, .gradient = 50 * kMiB, .parameters = {70 * kMiB}});
  CachedBlocks blocks;
  tape.train(blocks);
  EXPECT_EQ(blocks.peak_bytes(), (30 + 50 + 20 + 40 + 20 + 70) * kMiB);
  CachedBlocks evaluated;
  tape.evaluate(evaluated);
  EXPECT_EQ(evaluated.peak_bytes(), (30 + 50 + 10) * kMiB);
}

TEST(StepTape, LeavesNothingBehind) {
  StepTape tape;
  for (int64_t layer = 1; layer < 6; ++layer)
    tape.add({.held = {layer * 16 * kMiB}, .gradient = layer * 16 * kMiB, .parameters = {kMiB}});
  CachedBlocks blocks;
  tape.train(blocks);
  const int64_t once = blocks.reserved_bytes(), peak = blocks.peak_bytes();
  for (int i = 0; i < 3; ++i) tape.train(blocks);
  EXPECT_EQ(blocks.reserved_bytes(), once);
  EXPECT_EQ(blocks.peak_bytes(), peak);
}

}  // namespace
}  // namespace espalier::train
