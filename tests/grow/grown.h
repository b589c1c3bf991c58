// Lifecycles for tests: a small one, and one whose first slot is in a wanted stage.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

#include "espalier/grow/lifecycle.h"

namespace espalier::grow::testing {

inline LifecycleOptions small_options(int64_t lanes = 1) {
  return {.lanes = lanes, .slots = {"r0c0", "r0c1", "r1c0"}, .num_blueprints = 8};
}

// Passes every gate, strict ones too.
inline SeedMeasurements healthy() {
  return {.gradient_norm = 0.4, .gradient_ratio = 0.1, .improvement_points = 1.5, .contribution_points = 0.3};
}

inline Germination conv(int32_t tempo_steps = 3) {
  return {.blueprint = 6, .curve = BlendCurve::kCosine, .tempo_steps = tempo_steps, .target = 0.7f};
}

inline void run_epochs(Lifecycle& life, int count) {
  for (int i = 0; i < count; ++i) life.begin_epoch();
}

// The stages of (0, 0) after each of so many epochs.
inline std::vector<SeedStage> stages_over(Lifecycle& life, int epochs) {
  std::vector<SeedStage> seen;
  for (int i = 0; i < epochs; ++i) {
    life.begin_epoch();
    seen.push_back(life.at(0, 0).stage);
  }
  return seen;
}

// Brings (lane, slot), which is fresh, to the stage by the shortest way.
inline void bring_to(Lifecycle& life, SeedStage stage, int64_t lane = 0, int64_t slot = 0) {
  const auto reached = [&] { return life.at(lane, slot).stage == stage; };
  if (reached()) return;
  ASSERT_TRUE(life.germinate(lane, slot, conv()).passed());
  if (reached()) return;
  if (is_cleaning_up(stage)) {
    life.prune(lane, slot);
    for (int i = 0; i < 20 && !reached(); ++i) life.begin_epoch();
  } else {
    run_epochs(life, 3);
    if (reached()) return;
    ASSERT_TRUE(life.advance(lane, slot, healthy()).passed());
    run_epochs(life, 3);
    if (reached()) return;
    ASSERT_TRUE(life.advance(lane, slot, healthy()).passed());
    if (reached()) return;
    ASSERT_TRUE(life.fossilize(lane, slot, healthy()).passed());
  }
  ASSERT_TRUE(reached()) << name_of(stage);
}

inline std::vector<SlotState> copy_of(std::span<const SlotState> states) {
  return {states.begin(), states.end()};
}

inline bool same_bytes(std::span<const SlotState> a, std::span<const SlotState> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

}  // namespace espalier::grow::testing
