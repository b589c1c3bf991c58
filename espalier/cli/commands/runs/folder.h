// The runs of a folder, for the commands that list, prune and pack them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "espalier/watch/lines/record.h"

namespace espalier::cli {

struct FoundRun {
  std::filesystem::path path;
  watch::RunRecord record;
  int64_t bytes = 0;
};

// Newest first; links (latest) are other names of runs that are there anyway. Fails where there is no such
// folder.
std::vector<FoundRun> runs_in(const std::string& folder);

}  // namespace espalier::cli
