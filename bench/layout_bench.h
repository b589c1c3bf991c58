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
    v({.name = "device", .help = "cpu, cuda, cuda:N, or auto: a GPU where there is one"}, device);
    v({.name = "batch", .help = "samples per step", .low = 1, .high = 1 << 20}, batch);
    v({.name = "base", .help = "filters of the host's first of three blocks", .low = 1, .high = 1024}, base);
    v({.name = "precision", .help = "what is computed in; auto: bf16 on a GPU, fp32 on the CPU"},
      one_of(precision, train::precision_names()));
    v({.name = "peers", .help = "also time PyTorch in Python, where there is one"}, peers);
  }
};

// Returns the table, and the reductions in words.
std::string run_layout_bench(const LayoutBenchOptions& options, const std::string& commit,
                             const Progress& progress);

}  // namespace espalier::bench
