// `espalier bench layout`: what the layout is worth, on a host's training step and on one convolution, and
// what it costs to check it at the entry.
#pragma once

#include <string>

#include "bench/harness.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/train/job_config.h"

namespace espalier::bench {

struct LayoutBenchOptions {
  BenchOptions bench;
  std::string device = "auto";
  int64_t batch = 128;
  int64_t base = 32;
  train::Precision precision = train::Precision::kAuto;
  bool peers = true;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    visit_device(v, device);
    v(batch_option("samples per step"), batch);
    v({.name = "base", .help = "filters of the host's first of three blocks", .low = 1, .high = 1024}, base);
    visit_precision(v, precision);
    visit_peers(v, peers);
  }
};

// Returns the table, and the reductions in words.
std::string run_layout_bench(const LayoutBenchOptions& options, const std::string& commit,
                             const Progress& progress);

}  // namespace espalier::bench
