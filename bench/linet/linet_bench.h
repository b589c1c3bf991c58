// `espalier bench linet`: forward and backward of a multi-stream network in the ways one may write it, and
// where the time goes, kind of kernel by kind of kernel.
#pragma once

#include <string>

#include "bench/harness.h"
#include "bench/rates.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/train/job_config.h"

namespace espalier::bench {

struct LinetBenchOptions {
  BenchOptions bench;
  std::string device = "auto";
  std::string model = "li_resnet18";
  double width = 1;
  int64_t batch = 16;
  int64_t height = 416;
  int64_t columns = 544;
  train::Precision precision = train::Precision::kAuto;
  bool peers = true;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    visit_device(v, device);
    v({.name = "model",
       .help = "the residual network that every stream is",
       .choices = {"li_resnet18", "li_resnet34", "li_resnet50", "li_resnet101", "li_resnet152"}},
      model);
    v({.name = "width", .help = "what the widths 64 to 512 are multiplied with", .low = 0.01, .high = 16},
      width);
    v(batch_option("samples", 1 << 16), batch);
    v({.name = "height", .help = "rows of an image", .low = 32, .high = 8192}, height);
    v({.name = "columns", .help = "columns of an image", .low = 32, .high = 8192}, columns);
    visit_precision(v, precision);
    visit_peers(v, peers);
  }
};

// Adds ours and the peers, once these have made our first pass too.
void measure_linet(const LinetBenchOptions& options, const MachineRates& rates, Report& report);

// The same as a job, with more ways to write it: returns the tables, and how the convolutions were done.
std::string run_linet_bench(const LinetBenchOptions& options, const std::string& commit);

}  // namespace espalier::bench
