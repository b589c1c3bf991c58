// One harness for all benchmarks: warm up, time with events (or the clock, on the CPU), report median, best,
// the host's CPU time and the share of a written floor; a table for people and one JSON line a case for
// machines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "espalier/core/options.h"

namespace espalier::bench {

struct BenchOptions {
  bool smoke = false;
  int64_t threads = 0;  // 0: as torch chooses
  std::string json;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "smoke", .help = "run every case once, to see that it works"}, smoke);
    v({.name = "threads",
       .help = "threads of an operator on the CPU, of peers too; 0: as torch chooses, one a core or "
               "OMP_NUM_THREADS",
       .low = 0,
       .high = 4096},
      threads);
    v({.name = "json", .help = "append one JSON line a case to this file", .placeholder = "FILE"}, json);
  }
};

struct Timing {
  double median_us = 0;
  double best_us = 0;
  double host_us = 0;  // CPU time of the calling thread
};

// Times one call of `body`, from `samples` samples of `calls` calls each, after a warm-up. Asks between
// samples, and between calls of the warm-up, whether it was told to stop (core/machine/interrupt.h).
struct TimingPlan {
  int warm_up = 20;
  int samples = 30;
  int calls = 20;
};
Timing time_calls(c10::Device device, const TimingPlan& plan, const std::function<void()>& body);

struct Case {
  std::string name;    // "espalier, stacked"
  std::string shapes;  // "8 x 512, 3x32x32, bfloat16"
  Timing timing;
  double floor_us = 0;  // 0: none is known
  std::string note;
};

// Collects the cases of one benchmark.
class Report {
 public:
  Report(std::string workload, c10::Device device, std::string commit, const BenchOptions& options);

  void add(const Case& result);
  // The table, with what it was measured on; the first case is what the others are compared with.
  std::string text() const;

 private:
  std::string workload_;
  std::string machine_;
  std::string commit_;
  std::string json_file_;
  std::vector<Case> cases_;
};

// Runs bench/peers/<script> with the Python that has torch, and reads a JSON line a case: {"name": ...,
// "median_us":
// ..., "best_us": ..., "host_us": ..., "shapes": ...}. Nothing where there is no such Python or no such
// script; the reason is then in `problem`. A script does not outlive a program that is told to stop
// (core/machine/child_process.h).
std::vector<Case> run_peers(const std::string& script, const std::vector<std::string>& arguments,
                            std::string* problem);

}  // namespace espalier::bench
