// A run in a few words, for the tables of `runs` and `compare`.
#pragma once

#include <string>

#include "espalier/watch/run_record.h"

namespace espalier::cli {

std::string percent_text(double share);     // "52.10 %"; empty: not known
std::string duration_text(double seconds);  // "2 h 05 min", "1 min 12 s", "5.9 s"; empty: not known
std::string progress_text(const watch::RunRecord& run);  // "24 of 24 epochs"

}  // namespace espalier::cli
