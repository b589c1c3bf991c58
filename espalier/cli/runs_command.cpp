// espalier runs: what is in a folder of runs
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "espalier/cli/commands.h"
#include "espalier/cli/run_summary.h"
#include "espalier/core/error.h"
#include "espalier/core/interrupt.h"
#include "espalier/watch/run_reader.h"
#include "espalier/watch/table.h"

namespace espalier::cli {
namespace {

namespace fs = std::filesystem;

struct RunsOptions {
  std::string dir = "runs";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "dir", .help = "the folder that holds the runs", .placeholder = "DIR"}, dir);
  }
};

// Newest first; links (latest) are other names of runs that are there anyway.
std::vector<watch::RunRecord> runs_in(const std::string& folder) {
  std::error_code code;
  std::vector<watch::RunRecord> runs;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    throw_if_interrupted();
    std::error_code ignored;
    if (at->is_symlink(ignored) || !at->is_directory(ignored) || !watch::holds_run(at->path())) continue;
    runs.push_back(watch::read_run(at->path()));
  }
  if (code) fail("runs '{}': {}: give the folder that holds the runs", folder, code.message());
  std::ranges::sort(runs, [](const watch::RunRecord& a, const watch::RunRecord& b) {
    return a.began != b.began ? a.began > b.began : a.name > b.name;
  });
  return runs;
}

int list_runs(const RunsOptions& options, Context&) {
  const std::vector<watch::RunRecord> runs = runs_in(options.dir);
  if (runs.empty()) {
    fmt::print("no runs in {}: espalier train makes one\n", options.dir);
    return 0;
  }
  watch::Table table({"run", "job", "state", "done", ">best validation", ">test", ">duration"});
  for (const watch::RunRecord& run : runs)
    table.add_row({run.name, run.job, watch::name_of(run.state), progress_text(run),
                   percent_text(run.best().validation_accuracy), percent_text(run.test_accuracy()),
                   duration_text(run.seconds())});
  fmt::print("{}", table.text());
  return 0;
}

}  // namespace

void add_runs_command(CLI::App& app, Context& context) {
  add_job<RunsOptions>(app, context,
                       {.name = "runs",
                        .summary = "list runs: their state and their best results",
                        .examples = "  espalier runs\n  espalier runs /data/experiments\n",
                        .positionals = {{"dir", "DIR"}}},
                       list_runs);
}

}  // namespace espalier::cli
