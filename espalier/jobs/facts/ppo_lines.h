// A PPO run as lines of metrics.jsonl: one per step and lane, and one per round, by the names people know.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "espalier/jobs/facts/epoch_lines.h"
#include "espalier/train/control/ppo_trainer.h"

namespace espalier::jobs {

class PpoLines {
 public:
  PpoLines(const train::PopulationTrainer& environments, const train::PpoConfig& options);

  nlohmann::ordered_json step_line(int64_t round, const train::EpochRecord& epoch,
                                   const train::LaneRecord& lane) const;
  nlohmann::ordered_json round_line(const train::RoundRecord& round) const;

  const EpochLines& epochs() const { return epochs_; }

 private:
  EpochLines epochs_;
  std::vector<std::string> terms_;  // the rewards', by name
  double policy_rate_;
};

}  // namespace espalier::jobs
