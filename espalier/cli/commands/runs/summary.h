// A run in a few words, for the tables of `runs` and `compare`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "espalier/watch/lines/record.h"

namespace espalier::cli {

std::string percent_text(double share);     // "52.10 %"; empty: not known
std::string duration_text(double seconds);  // "2 h 05 min", "1 min 12 s", "5.9 s"; empty: not known
std::string return_text(double value);      // "0.512"; empty: not known
std::string progress_text(const watch::RunRecord& run);  // "24 of 24 epochs", "4 of 6 episodes"

// What a directory takes on the disk: all files below it; links are not followed.
int64_t tree_bytes(const std::filesystem::path& folder);

}  // namespace espalier::cli
