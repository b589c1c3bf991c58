// `espalier bench growing`: a training step and a validation of networks with seeds of all kinds, beside the
// same networks bare, beside what a cost model predicts, and beside a loop over torch modules.
#pragma once

#include <string>

#include "bench/harness.h"
#include "bench/rates.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/core/shared_options.h"
#include "espalier/train/job_config.h"

namespace espalier::bench {

struct GrowingBenchOptions {
  BenchOptions bench;
  std::string device = "auto";
  int64_t lanes = 32;
  int64_t batch = 256;
  int64_t seeds = 75;
  int64_t steps = 175;
  int64_t validation = 5000;
  train::Precision precision = train::Precision::kAuto;
  bool deterministic = false;
  bool model = true;
  bool peers = true;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    visit_device(v, device);
    v(lanes_option("networks at once"), lanes);
    v(batch_option("samples per network and step"), batch);
    v({.name = "seeds",
       .help =
           "seeds that stand in them, of all blueprints in turn, at most one in each of a network's slots",
       .low = 0,
       .high = 1 << 20},
      seeds);
    v({.name = "steps", .help = "steps of the epoch that is timed as a whole", .low = 1, .high = 1 << 20},
      steps);
    v({.name = "validation", .help = "samples that are scored", .low = 1, .high = 49000}, validation);
    visit_precision(v, precision);
    v(deterministic_option(), deterministic);
    v({.name = "model",
       .help =
           "also time steps with seeds of one kind, fit what a step costs to them, and predict the one with "
           "seeds of all kinds"},
      model);
    visit_peers(v, peers);
  }
};

// What one epoch takes: `steps` training steps, a validation and what is between them.
struct GrowingEpoch {
  double seconds = 0;  // of one that was run
  double sum_s = 0;    // its steps' and its validation's medians, added up
  // What the hosts' layers and the seeds' have to move and multiply in the steps, and the bare hosts' in one
  // pass over the validation split: a lower bound, since slots are scored without their seeds too.
  double floor_s = 0;

  std::string parts_text() const;  // "steps and validation, timed apart, add up to 0.700 s"
};

struct GrowingEpochs {
  GrowingEpoch grown, bare;
  int64_t num_seeds = 0;
  int64_t num_steps = 0;
  std::string model;  // what the cost model says, a line; empty: it was not asked
};

// Adds ours, with seeds and bare, and the peers, once these have made our first step too.
GrowingEpochs measure_growing(const GrowingBenchOptions& options, const MachineRates& rates, Report& report,
                              const Progress& progress);

// The same as a job: returns the table, and what an epoch of them takes.
std::string run_growing_bench(const GrowingBenchOptions& options, const std::string& commit,
                              const Progress& progress);

}  // namespace espalier::bench
