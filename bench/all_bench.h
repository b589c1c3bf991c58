// `espalier bench all`: every workload that the project is judged by, ours and the peers; floors from what
// this very machine copies and multiplies. Outputs are compared before anything is timed, except for rounds
// of PPO, for which we have no peer. A peer from --peer-dir says itself what it compared.
//
// Kept true: after every row the results are written as a whole, so that a run that is stopped keeps what it
// has measured; ours and the peers of a row are timed one after the other, in every repeat.
#pragma once

#include <string>
#include <vector>

#include "bench/harness.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/train/job_config.h"

namespace espalier::bench {

struct AllBenchOptions {
  BenchOptions bench;
  std::string device = "auto";
  train::Precision precision = train::Precision::kAuto;
  std::string data = "synthetic:shapes10";
  int64_t repeats = 3;
  std::vector<std::string> rows;
  std::string out = "bench/results";
  bool peers = true;

  template <class Visitor>
  void visit(Visitor&& v) {
    bench.visit(v);
    visit_device(v, device, "cpu (small sizes), cuda, cuda:N, or auto: a GPU where there is one");
    visit_precision(v, precision,
                    "what is computed in, peers included; auto: bf16 on a GPU, fp32 on the CPU");
    v({.name = "data", .help = "what PPO trains on; all else is random images", .placeholder = "SRC"}, data);
    v({.name = "repeats", .help = "how often everything is measured", .low = 1, .high = 100}, repeats);
    v({.name = "rows",
       .help = "some of growing, ppo, population, linet, gather, with commas between; empty: all",
       .placeholder = "LIST"},
      names_in(rows, "--rows"));
    v({.name = "out",
       .help = "folder for the results, as CARD-DATE.json; made where it is not there",
       .placeholder = "DIR"},
      out);
    visit_peers(v, peers, "also time PyTorch and JAX in Python, where they are");
  }
};

struct ProgramNames {
  std::string commit;
  std::string torch;    // the version
  std::string command;  // as it was typed
};

// Returns the table, and where the results are.
std::string run_all_bench(const AllBenchOptions& options, const ProgramNames& names,
                          const Progress& progress);

struct TableOptions {
  std::string file;
  std::string docs;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "file", .help = "what `espalier bench all` wrote", .placeholder = "FILE"}, file);
    v({.name = "docs",
       .help = "a Markdown file, whose table between the two marks is replaced; empty: print the table",
       .placeholder = "FILE"},
      docs);
  }
};

// `espalier bench table`: returns what is to be printed.
std::string run_bench_table(const TableOptions& options);

}  // namespace espalier::bench
