// espalier bench all | table | scaling | gather | population | growing | linet | layout | load
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "bench/all_bench.h"
#include "bench/gather_bench.h"
#include "bench/growing/growing_bench.h"
#include "bench/layout_bench.h"
#include "bench/linet/linet_bench.h"
#include "bench/load_bench.h"
#include "bench/population_bench.h"
#include "bench/scaling/scaling_bench.h"
#include "espalier/cli/commands.h"
#include "espalier/cli/stop_deadline.h"
#include "espalier/cli/version.h"
#include "espalier/core/machine/program.h"

namespace espalier::cli {
namespace {

// The longest that a benchmark takes to end once it is told to; peers end within it too.
constexpr auto kLongestEnd = std::chrono::seconds(3);

// Peers read it from the environment.
void set_threads(const bench::BenchOptions& options) {
  if (options.threads == 0) return;
  at::set_num_threads(static_cast<int>(options.threads));
  setenv("OMP_NUM_THREADS", std::to_string(options.threads).c_str(), /*overwrite=*/1);
}

}  // namespace

void add_bench_command(CLI::App& app, Context& context) {
  CLI::App& group = add_group(app, "bench", "measure this machine");
  add_job<bench::AllBenchOptions>(
      group, context,
      {.name = "all",
       .summary = "every workload, ours and the peers, as a table and as JSON",
       .examples =
           "  espalier bench all\n"
           "  espalier bench all --device cpu --rows population,gather --repeats 5 --out /tmp/results\n"
           "  espalier bench all --smoke --out /tmp/results\n"},
      [](const bench::AllBenchOptions& options, Context& context) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_all_bench(options,
                                              {.commit = git_commit(),
                                               .torch = built_torch_version(),
                                               .command = program_facts().command},
                                              context.progress()));
        return 0;
      });
  add_job<bench::TableOptions>(
      group, context,
      {.name = "table",
       .summary = "what `bench all` measured, as a table in Markdown",
       .examples =
           "  espalier bench table bench/results/nvidia-h200-2026-11-18.json\n"
           "  espalier bench table bench/results/nvidia-h200-2026-11-18.json --docs docs/benchmarks.md\n",
       .positionals = {{"file", "FILE"}}},
      [](const bench::TableOptions& options, Context&) {
        fmt::print("{}", bench::run_bench_table(options));
        return 0;
      });
  add_job<bench::ScalingBenchOptions>(
      group, context,
      {.name = "scaling",
       .summary = "a training step by lanes, batch, channels and resolution, with a fitted model and a plot",
       .examples = "  espalier bench scaling --out scaling.json --svg scaling.svg\n"
                   "  espalier bench scaling --device cpu --axes lanes,batch\n"},
      [](const bench::ScalingBenchOptions& options, Context& context) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_scaling_bench(options, git_commit(), program_facts().command,
                                                  context.progress()));
        return 0;
      });
  add_job<bench::GatherBenchOptions>(
      group, context,
      {.name = "gather",
       .summary = "a batch for all environments, beside PyTorch's ways",
       .examples = "  espalier bench gather\n  espalier bench gather --device cpu --lanes 4 --batch 64\n"},
      [](const bench::GatherBenchOptions& options, Context& context) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_gather_bench(options, git_commit(), context.progress()));
        return 0;
      });
  add_job<bench::PopulationBenchOptions>(
      group, context,
      {.name = "population",
       .summary = "a training step of all lanes, beside PyTorch and JAX",
       .examples = "  espalier bench population\n"
                   "  espalier bench population --device cpu --lanes 2 --batch 32 --base 8 --no-peers\n"},
      [](const bench::PopulationBenchOptions& options, Context& context) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_population_bench(options, git_commit(), context.progress()));
        return 0;
      });
  add_job<bench::GrowingBenchOptions>(
      group, context,
      {.name = "growing",
       .summary =
           "a step and a validation of networks with seeds of all kinds, beside a loop over torch modules",
       .examples = "  espalier bench growing\n"
                   "  espalier bench growing --device cpu --lanes 4 --batch 16 --seeds 7 --no-peers\n"},
      [](const bench::GrowingBenchOptions& options, Context& context) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_growing_bench(options, git_commit(), context.progress()));
        return 0;
      });
  add_job<bench::LinetBenchOptions>(
      group, context,
      {.name = "linet",
       .summary = "a multi-stream network forward and backward, in the ways one may write it",
       .examples = "  espalier bench linet\n"
                   "  espalier bench linet --device cpu --width 0.25 --batch 2 --height 64 --columns 96\n"},
      [](const bench::LinetBenchOptions& options, Context&) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_linet_bench(options, git_commit()));
        return 0;
      });
  add_job<bench::LayoutBenchOptions>(
      group, context,
      {.name = "layout",
       .summary = "what channels-last is worth, on a host and on one convolution",
       .examples = "  espalier bench layout\n  espalier bench layout --precision fp32\n"},
      [](const bench::LayoutBenchOptions& options, Context& context) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_layout_bench(options, git_commit(), context.progress()));
        return 0;
      });
  add_job<bench::LoadBenchOptions>(
      group, context,
      {.name = "load",
       .summary = "time until a dataset is ready in host memory",
       .examples = "  espalier bench load\n"},
      [](const bench::LoadBenchOptions& options, Context& context) {
        const StopDeadline deadline(kLongestEnd);
        set_threads(options.bench);
        fmt::print("{}", bench::run_load_bench(options, git_commit(), context.progress()));
        return 0;
      });
}

}  // namespace espalier::cli
