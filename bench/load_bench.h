// `espalier bench load`: how long until a dataset is ready in host memory, from a warm page cache.
#pragma once

#include <string>

#include "bench/harness.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"

namespace espalier::bench {

struct LoadBenchOptions {
  BenchOptions bench;
  std::string scratch;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    v({.name = "scratch",
       .help = "folder for 370 MB of files, removed afterwards; without it, the system's temporary folder",
       .placeholder = "DIR"},
      scratch);
  }
};

// Returns the table. The files have CIFAR-10's sizes and random contents.
std::string run_load_bench(const LoadBenchOptions& options, const std::string& commit,
                           const Progress& progress);

}  // namespace espalier::bench
