// Flags of a run: where its results go, and how it goes on after it was stopped.
#pragma once

#include "espalier/core/options.h"
#include "espalier/run/config.h"

namespace espalier::cli {

template <class Visitor>
void visit_folder(Visitor&& visitor, run::RunConfig& run) {
  auto v = in_group(visitor, "Run");
  v({.name = "run-dir",
     .help = "where to write results; without this flag a new folder in runs/",
     .placeholder = "DIR"},
    run.run_dir);
}

// Jobs that go on where they were stopped.
template <class Visitor>
void visit_session(Visitor&& visitor, run::RunConfig& run) {
  using run::Restart;
  visit_folder(visitor, run);
  auto v = in_group(visitor, "Run");
  v({.name = "resume",
     .help = "go on exactly where a run was stopped: its directory, one of its checkpoints, or latest; for "
             "train ppo also the file of a policy, to begin with",
     .placeholder = "PATH"},
    run.resume);
  v({.name = "restart",
     .help = "what to do where --run-dir holds a run: auto goes on with it if the configuration is the same; "
             "fresh throws it away; resume goes on, and fails without a checkpoint"},
    one_of(run.restart,
           {{"auto", Restart::kAuto}, {"fresh", Restart::kFresh}, {"resume", Restart::kResume}}));
  v({.name = "allow-change",
     .help = "keys of the configuration that may differ from the checkpoint's, with commas between",
     .placeholder = "KEYS"},
    names_in(run.allow_change, "--allow-change"));
  v({.name = "checkpoint-minutes",
     .help = "minutes between checkpoints; 0: one after every batch; one is always written when a signal "
             "stops the run, and at its end",
     .low = 0,
     .high = 1e6},
    run.checkpoint_minutes);
  v({.name = "keep-checkpoints",
     .help = "how many of the newest checkpoints to keep, besides the best",
     .low = 1,
     .high = 1e6},
    run.keep_checkpoints);
  v({.name = "report-minutes",
     .help = "minutes between two versions of report.html, the page of the run; one is always made at its "
             "end",
     .low = 0.01,
     .high = 1e6},
    run.report_minutes);
}

// Flags of jobs that train.
template <class Visitor>
void visit_run(Visitor&& visitor, run::RunConfig& run) {
  visit_session(visitor, run);
  auto v = in_group(visitor, "Run");
  v({.name = "lane-lines",
     .help =
         "write the lines of single networks (metrics.jsonl, TensorBoard) in every N-th epoch, or round of "
         "train ppo, and in the last; 0: never; lines of all networks together are always written",
     .low = 0,
     .high = 1e6,
     .placeholder = "N"},
    run.lane_lines);
}

}  // namespace espalier::cli
