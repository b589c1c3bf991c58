#include "espalier/train/controller.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "espalier/core/error.h"
#include "espalier/core/philox.h"
#include "espalier/train/episode_seed.h"
#include "espalier/train/heuristic_controller.h"

namespace espalier::train {
namespace {

class NoController final : public Controller {
 public:
  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override {
    return std::vector<SeedAction>(lanes.size());
  }
};

// Numbers of one lane and epoch, in the order in which they are asked for.
class Draws {
 public:
  Draws(uint64_t seed, int64_t lane, int64_t epoch)
      : seed_(seed), lane_(static_cast<uint32_t>(lane)), epoch_(static_cast<uint32_t>(epoch)) {}

  // In [0, count).
  uint32_t next(size_t count) {
    const Words4 words = philox4x32(seed_, lane_, epoch_, place_++, static_cast<uint32_t>(Purpose::kControl));
    return below(words[0], static_cast<uint32_t>(count));
  }
  template <class Choices>
  auto of(const Choices& choices) {
    return choices[next(choices.size())];
  }

 private:
  uint64_t seed_;
  uint32_t lane_;
  uint32_t epoch_;
  uint32_t place_ = 0;
};

// From at once to most of a short run, and from half to all of a seed.
constexpr std::array<int32_t, 4> kSteps{0, 1, 3, 5};
constexpr std::array<float, 3> kTargets{0.5f, 0.75f, 1.0f};

class RandomController final : public Controller {
 public:
  explicit RandomController(const ControllerOptions& options) : options_(options), seed_(options.seed) {}

  void begin_episode(int64_t round) override { seed_ = episode_seed(options_.seed, round); }

  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override {
    std::vector<SeedAction> actions;
    for (const LaneReport& lane : lanes) actions.push_back(decide(lane));
    return actions;
  }

 private:
  // The op first, then the slot: so that many free slots do not make germination the only thing that happens.
  SeedAction decide(const LaneReport& lane) const {
    std::vector<SeedOp> ops{SeedOp::kWait};
    std::array<std::vector<int32_t>, kNumSeedOps> slots;
    for (int op = 1; op < kNumSeedOps; ++op) {
      const auto asked = static_cast<SeedOp>(op);
      if (asked == SeedOp::kGerminate && options_.blueprints.empty()) continue;
      for (size_t slot = 0; slot < lane.slots.size(); ++slot)
        if (asked == SeedOp::kGerminate ? options_.limits.may_germinate(lane, slot)
                                        : may_choose(lane.slots[slot].state, asked))
          slots[static_cast<size_t>(op)].push_back(static_cast<int32_t>(slot));
      if (!slots[static_cast<size_t>(op)].empty()) ops.push_back(asked);
    }
    Draws draw(seed_, lane.lane, lane.epoch);
    SeedAction action{.op = draw.of(ops)};
    if (action.op == SeedOp::kWait) return action;
    action.slot = draw.of(slots[static_cast<size_t>(action.op)]);
    if (action.op == SeedOp::kGerminate) action.blueprint = draw.of(options_.blueprints);
    action.blend_operator = static_cast<BlendOperator>(draw.next(kNumBlendOperators));
    action.curve = static_cast<BlendCurve>(draw.next(kNumBlendCurves));
    action.steps = draw.of(kSteps);
    action.target = draw.of(kTargets);
    return action;
  }

  ControllerOptions options_;
  uint64_t seed_;  // of the episode
};

}  // namespace

bool tells_norm(Telemetry telemetry, SeedStage stage) {
  return telemetry == Telemetry::kAll || stage == SeedStage::kTraining || stage == SeedStage::kHolding;
}

bool GrowthLimits::may_germinate(const LaneReport& lane, size_t slot) const {
  if (!may_choose(lane.slots[slot].state, SeedOp::kGerminate)) return false;
  const auto held = std::ranges::count_if(
      lane.slots, [](const SlotReport& report) { return holds_seed(report.state.stage); });
  return held < max_seeds && (enabled_slots.empty() || enabled_slots[slot]);
}

std::vector<std::string> controller_names() {
  return {"none", "random", "heuristic"};
}

std::unique_ptr<Controller> make_controller(std::string_view name, const ControllerOptions& options) {
  if (name == "none") return std::make_unique<NoController>();
  if (name == "random") return std::make_unique<RandomController>(options);
  if (name == "heuristic") return std::make_unique<HeuristicController>(options);
  fail_usage("controller '{}': want one of {}", name, fmt::join(controller_names(), ", "));
}

}  // namespace espalier::train
