#include "espalier/grow/blend/amplitude_moves.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "espalier/grow/blend/amplitude.h"
#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

constexpr BlendCurve kCurves[] = {BlendCurve::kLinear, BlendCurve::kCosine, BlendCurve::kSigmoid6,
                                  BlendCurve::kSigmoid12, BlendCurve::kSigmoid24};
constexpr int64_t kBatches = 7;

// The curves in other words: the share of the way at a share of the time.
double rise(BlendCurve curve, double time) {
  const auto logistic = [&](double steepness) {
    const auto at = [&](double t) { return 1 / (1 + std::exp(-steepness * (t - 0.5))); };
    return (at(time) - at(0)) / (at(1) - at(0));
  };
  switch (curve) {
    case BlendCurve::kLinear:
      return time;
    case BlendCurve::kCosine:
      return (1 - std::cos(3.14159265358979323846 * time)) / 2;
    case BlendCurve::kSigmoid6:
      return logistic(6);
    case BlendCurve::kSigmoid12:
      return logistic(12);
    case BlendCurve::kSigmoid24:
      return logistic(24);
  }
  return 0;
}

at::Tensor bytes_of(const std::vector<SlotState>& states) {
  const at::Tensor bytes =
      at::zeros({std::ssize(states) * static_cast<int64_t>(sizeof(SlotState))}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), states.data(), states.size() * sizeof(SlotState));
  return bytes;
}

at::Tensor batch_number(int64_t batch) {
  return at::zeros({1}, at::kDouble).fill_(static_cast<double>(batch));
}

at::Tensor amplitudes_at(const std::vector<SlotState>& states, int64_t slots, int64_t batch,
                         at::Device device = at::kCPU) {
  const at::Tensor amplitudes =
      at::zeros({slots, std::ssize(states) / slots}, at::TensorOptions(device).dtype(at::kFloat));
  move_amplitudes_(amplitudes, bytes_of(states).to(device), batch_number(batch).to(device), kBatches);
  return amplitudes.cpu();
}

// [L,S]: two slots, lanes in every step of every curve, up and down; the last rests.
std::vector<SlotState> many_states() {
  std::vector<SlotState> states;
  for (const BlendCurve curve : kCurves)
    for (int done = 1; done <= 3; ++done) {
      SlotState up, down{.amplitude = 0.7f};
      begin_ramp(up, 1, 3, curve);
      begin_ramp(down, 0, 3, curve);
      for (int step = 0; step < done; ++step) {
        step_ramp(up);
        step_ramp(down);
      }
      states.insert(states.end(), {up, down});
    }
  states.insert(states.end(), {SlotState{}, SlotState{.amplitude = 0.3f, .ramp_steps = 3, .ramp_done = 3}});
  return states;
}

TEST(AmplitudeMoves, FollowTheCurveBatchByBatchFromStepToStep) {
  for (const BlendCurve curve : kCurves) {
    SlotState state{.amplitude = 0.25f};
    begin_ramp(state, 0.75f, 3, curve);
    float before = state.amplitude;
    for (int64_t epoch = 0; epoch < 5; ++epoch) {  // two more than the ramp has: it rests
      step_ramp(state);
      for (int64_t batch = 0; batch < kBatches; ++batch) {
        const float now = amplitudes_at({state}, 1, epoch * kBatches + batch)[0][0].item<float>();
        const double time = std::min(1.0, static_cast<double>(epoch * kBatches + batch + 1) / (3 * kBatches));
        EXPECT_NEAR(now, 0.25 + 0.5 * rise(curve, time), 1e-6)
            << name_of(curve) << ", epoch " << epoch << ", batch " << batch;
        EXPECT_GE(now, before);
        before = now;
      }
      EXPECT_EQ(before, state.amplitude) << "validation sees what the state says";
    }
    EXPECT_EQ(before, 0.75f);
  }
}

TEST(AmplitudeMoves, GiveALaneTheBitsItHasAlone) {
  const std::vector<SlotState> states = many_states();
  for (int64_t batch = 0; batch < kBatches; ++batch) {
    const at::Tensor all = amplitudes_at(states, 2, batch);
    for (int64_t lane = 0; lane < all.size(1); ++lane) {
      const auto at = states.begin() + 2 * lane;
      lanes::testing::expect_same_bits(amplitudes_at({at, at + 2}, 2, batch), all.narrow(1, lane, 1).clone(),
                                       "lane " + std::to_string(lane));
    }
  }
}

TEST(AmplitudeMoves, NameTheArgumentThatTheyRefuse) {
  const at::Tensor amplitudes = at::zeros({2, 3}), states = bytes_of(std::vector<SlotState>(6));
  EXPECT_ERROR(move_amplitudes_(amplitudes, bytes_of({SlotState{}}), batch_number(0), 1), c10::Error,
               "states");
  EXPECT_ERROR(move_amplitudes_(amplitudes, states, at::zeros({2}, at::kDouble), 1), c10::Error, "batch");
  EXPECT_ERROR(move_amplitudes_(amplitudes, states, batch_number(0), 0), c10::Error, "batches_per_epoch",
               "got 0");
}

// tanh and sin may round the last bit of a double otherwise there; a float seldom shows it.
TEST(AmplitudeMovesCuda, AreTheCpus) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const std::vector<SlotState> states = many_states();
  for (int64_t batch = 0; batch < kBatches; ++batch) {
    const at::Tensor got = amplitudes_at(states, 2, batch, at::Device(at::kCUDA, 0)),
                     want = amplitudes_at(states, 2, batch);
    EXPECT_LE((got - want).abs().max().item<float>(), std::numeric_limits<float>::epsilon());
  }
}

}  // namespace
}  // namespace espalier::grow
