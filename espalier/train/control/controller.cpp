#include "espalier/train/control/controller.h"

#include <algorithm>
#include <array>

#include "espalier/core/random/philox.h"
#include "espalier/policy/action/space.h"
#include "espalier/train/control/heuristic.h"
#include "espalier/train/population/episode_seed.h"

namespace espalier::train {
namespace {

class NoController final : public Controller {
 public:
  explicit NoController(const ControllerOptions& /*options*/) {}

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
    const SeedOp op = draw.of(ops);
    if (op == SeedOp::kWait) return {};
    // The policy's own action space, head by head; the op decides which of them count.
    std::array<int64_t, policy::kNumHeads> choice{};
    for (int i = 0; i < policy::kNumHeads; ++i) {
      const auto head = static_cast<policy::Head>(i);
      if (head == policy::Head::kOp)
        choice[static_cast<size_t>(i)] = static_cast<int64_t>(op);
      else if (head == policy::Head::kSlot)
        choice[static_cast<size_t>(i)] = draw.of(slots[static_cast<size_t>(op)]);
      else if (head != policy::Head::kBlueprint)
        choice[static_cast<size_t>(i)] = draw.next(static_cast<size_t>(policy::ActionSpace{}.size(head)));
      else if (policy::uses_head(op, head))
        choice[static_cast<size_t>(i)] = draw.of(options_.blueprints);
    }
    return policy::to_seed_action(choice);
  }

  ControllerOptions options_;
  uint64_t seed_;  // the episode's
};

template <class Made>
std::unique_ptr<Controller> make(const ControllerOptions& options) {
  return std::make_unique<Made>(options);
}

}  // namespace

bool GrowthLimits::may_germinate(const LaneReport& lane, size_t slot) const {
  if (!may_choose(lane.slots[slot].state, SeedOp::kGerminate)) return false;
  int64_t held = 0;
  for (const SlotReport& report : lane.slots) {
    if (forbids_planting(report.state.stage)) return false;
    held += holds_seed(report.state.stage) ? 1 : 0;
  }
  return held < max_seeds && (enabled_slots.empty() || enabled_slots[slot]);
}

Registry<ControllerKind>& controllers() {
  static Registry<ControllerKind> controllers("controller", {{"none", make<NoController>},
                                                             {"random", make<RandomController>},
                                                             {"heuristic", make<HeuristicController>}});
  return controllers;
}

}  // namespace espalier::train
