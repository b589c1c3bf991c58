// Rules by hand: one seed at a time per lane, planted when accuracy stands still, kept if it helps.
//
// Kept true: deterministic, and without memory: the report alone decides. In short:
//   no seed under way   germinate, where accuracy stands still and the run is long enough to finish
//   TRAINING            advance when G2 passes; prune where it has not by kPatienceSteps
//   BLENDING            advance when the blend arrived
//   HOLDING             after kHoldSteps: fossilise what contributes, prune what does harm or nothing; what
//                       is barred from that stays, and others are planted beside it
// What takes too long is pruned in a step that was validated alone: in the others gates lack evidence.
#pragma once

#include <vector>

#include "espalier/policy/action/space.h"
#include "espalier/train/control/controller.h"

namespace espalier::train {

class HeuristicController final : public Controller {
 public:
  // Accuracy stands still where the best of the last kPlateauEpochs is not kPlateauPoints above what was best
  // before them. Half a point is what one epoch's noise comes to on 5,000 samples (sqrt(p q / n) = 0.6).
  static constexpr int64_t kPlateauEpochs = 2;
  static constexpr double kPlateauPoints = 0.5;
  // Twice G2's own three steps and two more: what has no healthy gradient by then will not get one.
  static constexpr int32_t kPatienceSteps = 8;
  // The policy's shortest tempo, and of its styles the one that begins and ends gently.
  static constexpr int32_t kTempoSteps = policy::kTempoSteps[0];
  static constexpr size_t kStyle = 2;  // SIGMOID_ADD
  // The contribution of the first epoch at full amplitude is that of a host which has not settled.
  static constexpr int32_t kHoldSteps = 2;
  // Above: keep. Between it and 0: wait, up to kMaxHoldSteps, then keep whatever is above 0.
  static constexpr double kKeepPoints = 0.5;
  static constexpr int32_t kMaxHoldSteps = 5;

  explicit HeuristicController(const ControllerOptions& options);

  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override;

  // Epochs from germination until a seed can be fossilised, at best.
  int64_t shortest_life() const;

 private:
  SeedAction decide(const LaneReport& lane) const;
  SeedAction tend(const LaneReport& lane, int32_t index) const;
  SeedAction germinate(const LaneReport& lane) const;

  ControllerOptions options_;
};

}  // namespace espalier::train
