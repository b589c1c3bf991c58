// A population whose accuracy is a formula: the real lifecycle, but no network. A lane's accuracy saturates
// by itself; a seed adds to it, or takes away, by its blueprint and slot, with its amplitude and with how
// long it was trained; what is blended in before that hurts; one blueprint can end a lane.
//
// Kept true: what happens to a lane depends on (seed, lane, step) and on its own actions alone.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "espalier/core/random/philox.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/policy/observe/observation.h"

namespace espalier::policy::testing {

class SimulatedPopulation {
 public:
  static constexpr int64_t kSlots = 3, kBlueprints = 8;
  static constexpr ActionSpace kSpace{.num_slots = kSlots, .num_blueprints = kBlueprints};

  // By blueprint: what a seed is worth fully trained and blended in, in points.
  using Worth = std::array<double, kBlueprints>;
  static constexpr Worth kSomeHelp{0, 1, 6, -4, 0, 3, -2, -6};
  static constexpr Worth kOneHelps{0, -1, 5, -4, -2, -1, -3, -6};

  explicit SimulatedPopulation(int64_t lanes, const Worth& worth = kSomeHelp)
      : worth_(worth),
        lifecycle_({.lanes = lanes, .slots = {"r0c0", "r0c1", "r0c2"}, .num_blueprints = kBlueprints}),
        lanes_(static_cast<size_t>(lanes)) {}

  void begin(uint64_t seed) {
    seed_ = seed;
    step_ = 0;
    for (int64_t lane = 0; lane < num_lanes(); ++lane) {
      lifecycle_.reset_lane(lane);
      lanes_[static_cast<size_t>(lane)] = {};
    }
  }

  // An epoch of training of all lanes that are not lost, and what it tells.
  void train_epoch() {
    ++step_;
    for (int64_t lane = 0; lane < num_lanes(); ++lane) {
      Lane& now = lanes_[static_cast<size_t>(lane)];
      now.fails = false;
      if (now.lost) continue;
      lifecycle_.begin_epoch(lane);
      now.accuracy = host_accuracy(lane) + noise(lane, 0) * kNoisePoints;
      now.added = 0;
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        const SlotState& state = lifecycle_.at(lane, slot);
        const double gain = contribution(state, slot);
        now.accuracy += gain;
        now.contributions[static_cast<size_t>(slot)] =
            state.amplitude > 0 && state.stage != SeedStage::kFossilized
                ? std::optional(gain + noise(lane, 1 + static_cast<uint32_t>(slot)) * kNoisePoints)
                : std::nullopt;
        if (holds_seed(state.stage)) {
          now.added += kParameters[static_cast<size_t>(state.blueprint)];
          now.fails |= state.blueprint == kDangerous && state.amplitude > 0.6f && draw(lane, 9) < 0.2;
        }
      }
      now.accuracy = std::clamp(now.accuracy, 1.0, 99.0);
      now.lost = now.fails;
    }
  }

  void act(int64_t lane, const SeedAction& action) {
    if (lanes_[static_cast<size_t>(lane)].lost) return;
    lifecycle_.act(lane, action, measurements(lane, action.slot));
  }

  grow::SeedMeasurements measurements(int64_t lane, int64_t slot) const {
    return {
        .gradient_norm = 0.1,
        .contribution_points = lanes_[static_cast<size_t>(lane)].contributions[static_cast<size_t>(slot)]};
  }

  // failed: [L] bool: lost in this epoch.
  void tell(const RawObservation& readings, const at::Tensor& failed) const {
    std::memcpy(readings.states.mutable_data_ptr(), lifecycle_.states().data(),
                lifecycle_.states().size_bytes());
    for (int64_t lane = 0; lane < num_lanes(); ++lane) {
      const Lane& now = lanes_[static_cast<size_t>(lane)];
      float* told = readings.lanes.mutable_data_ptr<float>() + lane * kNumLaneReadings;
      const auto put = [&](LaneReading which, double value) {
        told[static_cast<int>(which)] = static_cast<float>(value);
      };
      put(LaneReading::kTrainLoss, -std::log(now.accuracy / 100));
      put(LaneReading::kTrainAccuracy, std::min(1.0, now.accuracy / 100 + 0.03));
      put(LaneReading::kValidationLoss, -std::log(now.accuracy / 100) + 0.1);
      put(LaneReading::kValidationAccuracy, now.accuracy / 100);
      put(LaneReading::kGradientNorm, 0.5);
      put(LaneReading::kAddedParameters, now.added);
      put(LaneReading::kBudgetUsed, now.added);
      for (int64_t slot = 0; slot < kSlots; ++slot) {
        float* seed = readings.slots.mutable_data_ptr<float>() + (lane * kSlots + slot) * kNumSlotReadings;
        const auto& measured = now.contributions[static_cast<size_t>(slot)];
        seed[static_cast<int>(SlotReading::kGradientNorm)] =
            holds_seed(lifecycle_.at(lane, slot).stage) ? 0.1f : NAN;
        seed[static_cast<int>(SlotReading::kContributionPoints)] =
            measured ? static_cast<float>(*measured) : NAN;
      }
      failed.mutable_data_ptr<bool>()[lane] = now.fails;
    }
  }

  int64_t num_lanes() const { return static_cast<int64_t>(lanes_.size()); }
  int64_t step() const { return step_; }
  const grow::Lifecycle& lifecycle() const { return lifecycle_; }
  bool lost(int64_t lane) const { return lanes_[static_cast<size_t>(lane)].lost; }
  double accuracy(int64_t lane) const { return lanes_[static_cast<size_t>(lane)].accuracy; }  // points

 private:
  struct Lane {
    double accuracy = 0;  // points
    double added = 0;     // parameters over the host's
    std::array<std::optional<double>, kSlots> contributions{};
    bool fails = false;  // in this epoch
    bool lost = false;
  };

  static constexpr double kNoisePoints = 0.3;
  static constexpr int32_t kDangerous = 7;
  // By blueprint, over the host's.
  static constexpr std::array<double, kBlueprints> kParameters{0, 0.1, 0.3, 0.2, 0.05, 0.5, 0.1, 0.4};
  static constexpr std::array<double, kSlots> kSlotFactor{0.6, 1, 1.3};
  // By BlendOperator.
  static constexpr std::array<double, kNumBlendOperators> kOperatorFactor{1, 0.7, 1.1};

  double draw(int64_t lane, uint32_t what) const {  // in [0,1)
    return philox4x32(seed_, static_cast<uint32_t>(lane), static_cast<uint32_t>(step_), what,
                      static_cast<uint32_t>(Purpose::kSynthetic))[0] *
           0x1p-32;
  }
  // Mean 0, variance 1, bounded.
  double noise(int64_t lane, uint32_t what) const { return (draw(lane, what) - 0.5) * std::sqrt(12.0); }

  // 10 points at first, towards 55 to 65.
  double host_accuracy(int64_t lane) const {
    const double top = 55 + 10 *
                                philox4x32(seed_, static_cast<uint32_t>(lane), 0, 0,
                                           static_cast<uint32_t>(Purpose::kSynthetic))[1] *
                                0x1p-32;
    return 10 + (top - 10) * (1 - std::exp(-static_cast<double>(step_) / 5));
  }

  double contribution(const SlotState& state, int64_t slot) const {
    if (!holds_seed(state.stage)) return 0;
    const double trained = 1 - std::exp(-state.age_steps / 4.0);
    const double full = worth_[static_cast<size_t>(state.blueprint)] *
                        kSlotFactor[static_cast<size_t>(slot)] *
                        kOperatorFactor[static_cast<size_t>(state.blend_operator)];
    return state.amplitude * (full * trained - 4 * (1 - trained));
  }

  Worth worth_;
  grow::Lifecycle lifecycle_;
  std::vector<Lane> lanes_;
  uint64_t seed_ = 0;
  int64_t step_ = 0;
};

}  // namespace espalier::policy::testing
