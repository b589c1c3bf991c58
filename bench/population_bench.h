// `espalier bench population`: one training step of all lanes, gather included, beside what PyTorch and JAX
// users would write.
#pragma once

#include <string>

#include "bench/harness.h"
#include "bench/rates.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/core/shared_options.h"
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
    visit_device(v, device);
    v(lanes_option("networks at once; 0: 128 of batch 64 and base 8, and 8 of batch 512 and base 32", 0),
      lanes);
    v(batch_option("samples per network and step, with --lanes"), batch);
    v({.name = "base", .help = "filters of the first of three blocks, with --lanes", .low = 1, .high = 1024},
      base);
    visit_precision(v, precision);
    v({.name = "graphs", .help = "on a GPU, capture the step once and replay it"}, graphs);
    v(deterministic_option(), deterministic);
    visit_peers(v, peers, "also time PyTorch and JAX in Python, where they are");
  }
};

// Adds ours and, where they are wanted, the peers, once these have made our first step too.
void measure_population(const PopulationBenchOptions& options, const MachineRates& rates, Report& report,
                        const Progress& progress);

// The same as a job: returns the table, and how the convolutions were done.
std::string run_population_bench(const PopulationBenchOptions& options, const std::string& commit,
                                 const Progress& progress);

}  // namespace espalier::bench
