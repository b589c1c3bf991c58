// `espalier bench population`: one training step of all lanes, gather included, beside what PyTorch and JAX
// users would write.
#pragma once

#include <string>

#include "bench/harness.h"
#include "bench/rates.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/train/job_config.h"

namespace espalier::bench {

struct PopulationBenchOptions {
  BenchOptions bench;
  std::string device = "auto";
  int64_t lanes = 0;
  int64_t batch = 64;
  int64_t base = 8;
  train::Precision precision = train::Precision::kAuto;
  bool graphs = true;
  bool deterministic = false;
  bool peers = true;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    v({.name = "device", .help = "cpu, cuda, cuda:N, or auto: a GPU where there is one"}, device);
    v({.name = "lanes",
       .help = "networks at once; 0: 128 of batch 64 and base 8, and 8 of batch 512 and base 32",
       .low = 0,
       .high = 4096,
       .aliases = {{.name = "envs"}}},
      lanes);
    v({.name = "batch",
       .help = "samples per network and step, with --lanes",
       .low = 1,
       .high = 1 << 20,
       .aliases = {{.name = "batch-per-env"}}},
      batch);
    v({.name = "base", .help = "filters of the first of three blocks, with --lanes", .low = 1, .high = 1024},
      base);
    v({.name = "precision", .help = "what is computed in; auto: bf16 on a GPU, fp32 on the CPU"},
      one_of(precision, train::precision_names()));
    v({.name = "graphs", .help = "on a GPU, capture the step once and replay it"}, graphs);
    v({.name = "deterministic",
       .help = "fixed convolutions instead of those that are measured to be fastest"},
      deterministic);
    v({.name = "peers", .help = "also time PyTorch and JAX in Python, where they are"}, peers);
  }
};

// Adds ours and, where they are wanted, the peers, once these have made our first step too.
void measure_population(const PopulationBenchOptions& options, const MachineRates& rates, Report& report,
                        const Progress& progress);

// The same as a job: returns the table, and how the convolutions were done.
std::string run_population_bench(const PopulationBenchOptions& options, const std::string& commit,
                                 const Progress& progress);

}  // namespace espalier::bench
