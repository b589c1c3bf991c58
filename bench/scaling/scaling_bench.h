// `espalier bench scaling`: how a training step grows with lanes, batch, channels and resolution: measured,
// fitted and drawn.
#pragma once

#include <string>
#include <vector>

#include "bench/harness.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/train/job_config.h"

namespace espalier::bench {

struct ScalingBenchOptions {
  BenchOptions bench;
  std::string device = "auto";
  train::Precision precision = train::Precision::kAuto;
  std::vector<std::string> axes;
  std::string out;
  std::string svg;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    visit_device(v, device, "cpu (small ranges), cuda, cuda:N, or auto: a GPU where there is one");
    visit_precision(v, precision);
    v({.name = "axes",
       .help = "some of lanes, batch, channels, resolution, with commas between; empty: all",
       .placeholder = "LIST"},
      names_in(axes, "--axes"));
    v({.name = "out", .help = "write the figures and the fits there, as JSON", .placeholder = "FILE"}, out);
    v({.name = "svg", .help = "draw them there", .placeholder = "FILE"}, svg);
  }
};

// Returns the table and the fits.
std::string run_scaling_bench(const ScalingBenchOptions& options, const std::string& commit,
                              const std::string& command, const Progress& progress);

}  // namespace espalier::bench
