// espalier runs: what is in a folder of runs
#include <fmt/format.h>

#include <algorithm>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/runs/folder.h"
#include "espalier/cli/commands/runs/summary.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/run/earlier.h"
#include "espalier/run/files/checkpoint_folder.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

struct RunsOptions {
  std::string dir = "runs";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "dir", .help = "the folder that holds the runs", .placeholder = "DIR"}, dir);
  }
};

int list_runs(const RunsOptions& options, Context&) {
  const std::vector<FoundRun> runs = runs_in(options.dir);
  if (runs.empty()) {
    fmt::print("no runs in {}: espalier train makes one\n", options.dir);
    return 0;
  }
  watch::Table table({"run", "job", "state", "done", ">best validation", ">test", ">duration", ">size"});
  for (const auto& [path, run, bytes] : runs)
    table.add_row({run.name, run.job, watch::name_of(run.state), progress_text(run),
                   percent_text(run.best().validation_accuracy), percent_text(run.test_accuracy()),
                   duration_text(run.seconds()), format_byte_size(bytes)});
  fmt::print("{}", table.text());
  const auto stopped = std::ranges::find_if(runs, [](const FoundRun& run) {
    return run.record.state == watch::RunState::kStopped &&
           !run::CheckpointFolder(run.path / run::kCheckpoints).names().empty();
  });
  if (stopped != runs.end())
    fmt::print("to go on with {}: {}\n", stopped->record.name,
               run::resume_command(stopped->record.job, stopped->path));
  return 0;
}

}  // namespace

void add_runs_command(CLI::App& app, Context& context) {
  CLI::App& runs = add_job<RunsOptions>(
      app, context,
      {.name = "runs",
       .summary = "list runs: their state, best results and sizes; prune or pack them",
       .examples = "  espalier runs\n  espalier runs /data/experiments\n  espalier runs prune --keep 5\n",
       .positionals = {{"dir", "DIR"}}},
      list_runs);
  add_runs_prune(runs, context);
  add_runs_pack(runs, context);
}

}  // namespace espalier::cli
