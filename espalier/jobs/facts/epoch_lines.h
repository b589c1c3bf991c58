// An epoch as lines of metrics.jsonl: one per lane, and one for all of them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "espalier/train/population/shard.h"

namespace espalier::jobs {

class EpochLines {
 public:
  explicit EpochLines(const grow::NetworkStack& population);

  nlohmann::ordered_json lane_line(const train::EpochRecord& epoch, const train::LaneRecord& lane) const;
  // learning_rate: at the epoch's end, of lanes that never failed.
  nlohmann::ordered_json epoch_line(const train::EpochRecord& epoch, double learning_rate) const;

  // "GERMINATE r1c2 conv_light"; "" for WAIT.
  std::string action_text(const SeedAction& action) const;

 private:
  std::vector<std::string> slots_;
  std::vector<std::string> blueprints_;
};

}  // namespace espalier::jobs
