// espalier bench gather | load
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "bench/gather_bench.h"
#include "bench/load_bench.h"
#include "espalier/cli/commands.h"
#include "espalier/cli/version.h"

namespace espalier::cli {

void add_bench_command(CLI::App& app, Context& context) {
  CLI::App& group = add_group(app, "bench", "measure this machine");
  add_job<bench::GatherBenchOptions>(
      group, context,
      {.name = "gather",
       .summary = "a batch for all environments, beside PyTorch's ways",
       .examples = "  espalier bench gather\n  espalier bench gather --device cpu --envs 4 --batch 64\n"},
      [](const bench::GatherBenchOptions& options, Context& context) {
        fmt::print("{}", bench::run_gather_bench(options, git_commit(), context.progress()));
        return 0;
      });
  add_job<bench::LoadBenchOptions>(
      group, context,
      {.name = "load",
       .summary = "time until a dataset is ready in host memory",
       .examples = "  espalier bench load\n"},
      [](const bench::LoadBenchOptions& options, Context& context) {
        fmt::print("{}", bench::run_load_bench(options, git_commit(), context.progress()));
        return 0;
      });
}

}  // namespace espalier::cli
