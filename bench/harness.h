// One harness for all benchmarks: warm up, time with events (or the clock, on the CPU), report median, best,
// the host's CPU time and the share of a written floor; a table for people and one JSON line per case
// for machines.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/options.h"
#include "espalier/core/shared_options.h"
#include "espalier/train/job_config.h"

namespace espalier::bench {

struct BenchOptions {
  bool smoke = false;
  int64_t threads = 0;  // 0: as torch chooses
  std::string json;
  std::string peer_dir;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "smoke", .help = "run every case once, to see that it works"}, smoke);
    v({.name = "threads",
       .help = "threads of an operator on the CPU, of peers too; 0: as torch chooses, one per core or "
               "OMP_NUM_THREADS",
       .low = 0,
       .high = 4096},
      threads);
    v({.name = "json", .help = "append one JSON line per case to this file", .placeholder = "FILE"}, json);
    v({.name = "peer-dir",
       .help = "also time every script in this folder (bench/README.md says what it is given, and answers)",
       .placeholder = "DIR"},
      peer_dir);
  }
};

// What most benchmarks are told besides.

template <class Visitor>
void visit_device(Visitor&& v, std::string& device,
                  std::string_view help = "cpu, cuda, cuda:N, or auto: a GPU where there is one") {
  v(device_option(help), device);
}

template <class Visitor>
void visit_precision(Visitor&& v, train::Precision& precision,
                     std::string_view help = "what is computed in; auto: bf16 on a GPU, fp32 on the CPU") {
  v(precision_option(help), one_of(precision, train::precision_names()));
}

template <class Visitor>
void visit_peers(Visitor&& v, bool& peers,
                 std::string_view help = "also time PyTorch in Python, where there is one") {
  v({.name = "peers", .help = help}, peers);
}

struct Timing {
  double median_us = 0;
  double best_us = 0;
  double host_us = 0;  // CPU time of the calling thread; 0: not known
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
  std::string script;   // the peer that was timed; empty: ours
  std::string checked;  // what its outputs were compared with before it was timed, and how far they are off
};

// Collects the cases of one benchmark.
class Report {
 public:
  Report(std::string workload, c10::Device device, std::string commit, const BenchOptions& options);

  void add(const Case& result);
  // A line of its own for machines, with the workload, the machine, the commit and the time.
  void add_line(const nlohmann::ordered_json& line) const;
  // Times scripts of bench/peers, and those of --peer-dir, beside ours.
  void add_peers(const std::vector<std::string>& scripts, std::vector<std::string> arguments);

  const std::vector<Case>& cases() const { return cases_; }
  const std::vector<std::string>& problems() const { return problems_; }  // why a peer is missing
  // The table, with what it was measured on; the first case is what the others are compared with. Then the
  // problems.
  std::string text() const;

 private:
  std::string workload_;
  std::string machine_;
  std::string commit_;
  BenchOptions options_;
  std::vector<Case> cases_;
  std::vector<std::string> problems_;
};

// "NVIDIA H200, CUDA 13.0, driver for 13.0"; "AMD EPYC, 2 cores".
std::string machine_text(c10::Device device);
// What is in front of the comma there: the card, or the processor.
std::string card_text(c10::Device device);
std::string now_text();  // "2026-11-18T12:00:00Z"

}  // namespace espalier::bench
