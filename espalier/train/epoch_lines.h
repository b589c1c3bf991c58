// An epoch as lines of metrics.jsonl: one a lane, and one for all of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "espalier/train/population_trainer.h"

namespace espalier::train {

class EpochLines {
 public:
  explicit EpochLines(const grow::Population& population);

  nlohmann::ordered_json of_lane(const EpochRecord& epoch, const LaneRecord& lane) const;
  nlohmann::ordered_json of_all(const EpochRecord& epoch) const;

  // "GERMINATE r1c2 conv_light"; "" for WAIT.
  std::string action_text(const SeedAction& action) const;

 private:
  std::vector<std::string> slots_;
  std::vector<std::string> blueprints_;
};

}  // namespace espalier::train
