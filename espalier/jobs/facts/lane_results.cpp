#include "espalier/jobs/facts/lane_results.h"

#include <nlohmann/json.hpp>

#include "espalier/run/files/metric_keys.h"

namespace espalier::jobs {

// From the networks themselves and not from the last epoch's record: a finished run that is resumed trains no
// epoch.
std::vector<nlohmann::ordered_json> lane_result_lines(train::PopulationTrainer& environments,
                                                      std::span<const train::LaneScore> tested) {
  std::vector<nlohmann::ordered_json> lines(tested.size());
  for (size_t p = 0; p < environments.num_shards(); ++p) {
    train::Shard& shard = environments.shard(p);
    for (int64_t lane = 0; lane < shard.population().num_lanes(); ++lane) {
      int64_t kept = 0;
      for (const SlotState& slot : shard.lifecycle().lane_states(lane))
        kept += slot.stage == SeedStage::kFossilized ? 1 : 0;
      const auto env = static_cast<size_t>(shard.env_of(lane));
      lines[env] = {{"kind", name_of(run::LineKind::kLaneResult)},
                    {"lane", env},
                    {"test_loss", tested[env].loss},
                    {"test_accuracy", tested[env].accuracy},
                    {"parameters", shard.population().num_parameters(lane)},
                    {"seeds_kept", kept}};
    }
  }
  // Lanes of other ranks, as they tell them.
  const std::vector<std::string> told = environments.world().gather(nlohmann::ordered_json(lines).dump());
  for (size_t rank = 1; rank < told.size(); ++rank) {
    const auto theirs = nlohmann::ordered_json::parse(told[rank]);
    for (size_t env = 0; env < lines.size(); ++env) {
      if (theirs.at(env).is_null()) continue;
      lines[env] = theirs.at(env);
      // Rank 0 has the scores: JSON has no NaN.
      lines[env]["test_loss"] = tested[env].loss;
      lines[env]["test_accuracy"] = tested[env].accuracy;
    }
  }
  return lines;
}

}  // namespace espalier::jobs
