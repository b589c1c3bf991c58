// Where a run leaves its results, and how it goes on after it was stopped: flags of every training job.
#pragma once

#include <cstdint>
#include <string>

namespace espalier::train {

struct RunOptions {
  std::string run_dir;
  std::string resume;
  std::string restart = "auto";
  std::string allow_change;
  double checkpoint_minutes = 5;
  int64_t keep_checkpoints = 2;
  double report_minutes = 5;

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_folder(v);
    visit_checkpoints(v);
  }

  template <class Visitor>
  void visit_folder(Visitor&& v) {
    v({.name = "run-dir",
       .help = "where to write results; without it a new folder in runs/",
       .placeholder = "DIR"},
      run_dir);
  }

  template <class Visitor>
  void visit_checkpoints(Visitor&& v) {
    v({.name = "resume",
       .help = "go on exactly where a run was stopped: its directory, one of its checkpoints, or latest; for "
               "train "
               "ppo also the file of a policy, to begin with",
       .placeholder = "PATH"},
      resume);
    v({.name = "restart",
       .help = "where --run-dir holds a run: auto goes on with it if the configuration is the same; fresh "
               "throws it away; resume wants a checkpoint",
       .choices = {"auto", "fresh", "resume"}},
      restart);
    v({.name = "allow-change",
       .help = "keys of the configuration that may differ from the checkpoint's, with commas between",
       .placeholder = "KEYS"},
      allow_change);
    v({.name = "checkpoint-minutes",
       .help = "time between checkpoints; 0: one after every batch; one is written in any case when a signal "
               "stops the run, and at its end",
       .low = 0,
       .high = 1e6},
      checkpoint_minutes);
    v({.name = "keep-checkpoints",
       .help = "how many of the newest are kept; the best is kept besides",
       .low = 1,
       .high = 1e6},
      keep_checkpoints);
    v({.name = "report-minutes",
       .help = "time between two versions of report.html, the page of the run; one is made in any case at "
               "its end",
       .low = 0.01,
       .high = 1e6},
      report_minutes);
  }
};

}  // namespace espalier::train
