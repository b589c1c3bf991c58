#include "espalier/cli/commands/runs/folder.h"

#include <algorithm>

#include "espalier/cli/commands/runs/summary.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/watch/lines/reader.h"

namespace espalier::cli {
namespace fs = std::filesystem;

std::vector<FoundRun> runs_in(const std::string& folder) {
  std::error_code code;
  std::vector<FoundRun> runs;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    throw_if_interrupted();
    std::error_code ignored;
    if (at->is_symlink(ignored) || !at->is_directory(ignored) || !watch::holds_run(at->path())) continue;
    runs.push_back({at->path(), watch::read_run(at->path()), tree_bytes(at->path())});
  }
  if (code) fail("runs '{}': {}: give the folder that holds the runs", folder, code.message());
  std::ranges::sort(runs, [](const FoundRun& a, const FoundRun& b) {
    return a.record.began != b.record.began ? a.record.began > b.record.began : a.record.name > b.record.name;
  });
  return runs;
}

}  // namespace espalier::cli
