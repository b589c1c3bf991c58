// `espalier bench gather`: how long a batch for all lanes takes, beside what a PyTorch user would write.
#pragma once

#include <string>

#include "bench/harness.h"
#include "bench/rates.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"

namespace espalier::bench {

struct GatherBenchOptions {
  BenchOptions bench;
  std::string device = "auto";
  std::string data;
  int64_t lanes = 0;
  int64_t batch = 512;
  bool peers = true;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    visit_device(v, device);
    v({.name = "data",
       .help = "a source; without it, random images of CIFAR-10's sizes",
       .placeholder = "SRC"},
      data);
    v(lanes_option("networks at once; 0: 8 of batch 512 and 128 of batch 64", 0, 2048), lanes);
    v(batch_option("samples per network and step, with --lanes"), batch);
    visit_peers(v, peers);
  }
};

// Adds ours and the peers, once ours gives what plain indexing does.
void measure_gather(const GatherBenchOptions& options, const MachineRates& rates, Report& report,
                    const Progress& progress);

// The same as a job: returns the table.
std::string run_gather_bench(const GatherBenchOptions& options, const std::string& commit,
                             const Progress& progress);

}  // namespace espalier::bench
