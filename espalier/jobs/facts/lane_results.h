// The results of a run's networks, as lines of metrics.jsonl: one per lane, written when all are trained.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

#include "espalier/train/population/trainer.h"

namespace espalier::jobs {

// tested: as PopulationTrainer::test() gives it.
std::vector<nlohmann::ordered_json> lane_result_lines(train::PopulationTrainer& environments,
                                                      std::span<const train::LaneScore> tested);

}  // namespace espalier::jobs
