// What distinguishes one dataset from another, for the fingerprint of a run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "espalier/data/resident.h"

namespace espalier::jobs {

// Sizes, class names, means and deviations, a checksum of all labels.
nlohmann::ordered_json dataset_facts(const data::ResidentDataset& dataset);

// Where the data has no validation split (--validation 0), nobody can decide what grows: any controller but
// none is refused.
void check_can_decide(const data::ResidentDataset& dataset, const std::string& controller);

// The line of an epoch that was not validated, or on nothing: what was not measured is null.
void clear_validation(nlohmann::ordered_json& line);

}  // namespace espalier::jobs
