// A PPO run as lines of metrics.jsonl: one a step and lane, and one a round, by the names people know.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "espalier/train/epoch_lines.h"
#include "espalier/train/ppo_trainer.h"

namespace espalier::train {

class PpoLines {
 public:
  PpoLines(const grow::Population& population, const PpoJobOptions& options);

  // reward: of the lane's decision before this epoch.
  nlohmann::ordered_json of_step(int64_t round, const EpochRecord& epoch, const LaneRecord& lane,
                                 const RewardTerms& reward) const;
  nlohmann::ordered_json of_round(const RoundRecord& round) const;

  const EpochLines& epochs() const { return epochs_; }

 private:
  EpochLines epochs_;
  double policy_rate_;
};

}  // namespace espalier::train
