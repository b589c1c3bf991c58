// What an evaluation found, as a table.
#pragma once

#include <string>

#include "espalier/jobs/evaluate.h"

namespace espalier::cli {

// Controllers as rows, then a line about how they were compared, and one for each that could not do all it
// was to replay.
std::string comparison_text(const jobs::EvaluateConfig& options, const jobs::EvaluateResult& result);

}  // namespace espalier::cli
