// espalier train host, espalier train population (train ppo and linet: files of their own)
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "espalier/cli/commands.h"
#include "espalier/cli/run_messages.h"
#include "espalier/core/byte_size.h"
#include "espalier/train/host_job.h"
#include "espalier/train/population_job.h"

namespace espalier::cli {
namespace {

using train::HostJobOptions;
using train::PopulationOptions;

train::PopulationEvents events_of(Context& context) {
  train::PopulationEvents events;
  events.progress = context.progress();
  events.run = run_events(context);
  events.started = [](const data::ResidentDataset& dataset, const train::MemoryPlan& plan,
                      const std::filesystem::path& run) {
    fmt::print(
        "{}: {} to train on, {} to validate, {} to test; {} {}\n", dataset.origin,
        dataset.train.num_samples(), dataset.validation.num_samples(), dataset.test.num_samples(),
        format_byte_size(dataset.bytes()),
        dataset.residency == data::Residency::kHost ? "in pinned host memory" : "on " + dataset.device.str());
    if (plan.budget_bytes > 0)
      fmt::print("device memory: {} planned of {}; CUDA itself took {} when it started\n",
                 format_byte_size(plan.total_bytes()), format_byte_size(plan.budget_bytes),
                 format_byte_size(plan.context_bytes));
    if (dataset.format == MemoryFormat::kContiguous)
      fmt::print("memory format contiguous, for comparison: a step is timed after the first epoch\n");
    fmt::print("results: {}\n", run.string());
    std::fflush(stdout);
  };
  events.formats_compared = [](const train::FormatComparison& compared) {
    fmt::print("contiguous: {:.3g} ms a step", compared.step_ms);
    if (const auto& other = compared.channels_last_ms)
      fmt::print(", {:.2f} times channels-last's {:.3g} ms\n", compared.step_ms / *other, *other);
    else
      fmt::print("; the device has no room for a second population in channels-last to compare with\n");
    std::fflush(stdout);
  };
  return events;
}

int train_host(const HostJobOptions& options, Context& context) {
  train::PopulationEvents events = events_of(context);
  events.epoch_done = [&](const train::EpochRecord& epoch) {
    const train::LaneRecord& lane = epoch.lanes.front();
    fmt::print(
        "epoch {}/{}  loss {:.4f}  accuracy {:.2f} %  validation loss {:.4f}  accuracy {:.2f} %  {:.1f} "
        "s{}\n",
        epoch.epoch, options.epochs, lane.trained.loss, 100 * lane.trained.accuracy, lane.validated.loss,
        100 * lane.validated.accuracy, epoch.seconds,
        lane.outcome == train::LaneOutcome::kRolledBack ? "; not finite: rolled back, rate halved" : "");
    std::fflush(stdout);
  };
  const train::PopulationResult result = run_host_job(options, events);
  fmt::print("test accuracy {:.2f} %, loss {:.4f}, {:.1f} s in all; results are in {}\n",
             100 * result.mean().accuracy, result.mean().loss, result.seconds, result.run_dir.string());
  return 0;
}

// What is worth a line of its own: a lane that failed.
void print_failures(const train::EpochRecord& epoch) {
  for (const train::LaneRecord& lane : epoch.lanes) {
    if (lane.outcome == train::LaneOutcome::kRolledBack)
      fmt::print("  lane {}: the loss was not finite: rolled back, learning rate halved ({} of {})\n",
                 lane.lane, lane.num_rollbacks, train::PopulationTrainer::kMaxRollbacks);
    if (lane.outcome == train::LaneOutcome::kRetired && lane.trained.non_finite > 0)
      fmt::print("  lane {}: the loss was not finite again: retired, its last good state is kept\n",
                 lane.lane);
  }
}

int train_population(const PopulationOptions& options, Context& context) {
  train::PopulationEvents events = events_of(context);
  events.epoch_done = [&](const train::EpochRecord& epoch) {
    double best = 0;
    int64_t seeds = 0;
    for (const train::LaneRecord& lane : epoch.lanes) {
      best = std::max(best, lane.validated.accuracy);
      for (const train::SlotReport& slot : lane.slots) seeds += holds_seed(slot.state.stage) ? 1 : 0;
    }
    fmt::print(
        "epoch {}/{}  loss {:.4f}  accuracy {:.2f} %  validation accuracy {:.2f} %, best {:.2f} %  {} {}",
        epoch.epoch, options.epochs, epoch.mean_trained().loss, 100 * epoch.mean_trained().accuracy,
        100 * epoch.mean_validated().accuracy, 100 * best, seeds, seeds == 1 ? "seed" : "seeds");
    if (epoch.num_captures > 0)
      fmt::print("  {} captured in {:.2f} s", epoch.num_captures, epoch.capture_seconds);
    fmt::print("  {:.1f} s\n", epoch.seconds);
    print_failures(epoch);
    std::fflush(stdout);
  };
  const train::PopulationResult result = run_population_job(options, events);
  const int64_t best = result.best_lane();
  fmt::print(
      "test accuracy {:.2f} % on average, {:.2f} % at best (lane {}), {:.1f} s in all; results are in {}\n",
      100 * result.mean().accuracy, 100 * result.tested[static_cast<size_t>(best)].accuracy, best,
      result.seconds, result.run_dir.string());
  if (result.num_retired > 0) fmt::print("{} of {} lanes were retired\n", result.num_retired, options.lanes);
  return 0;
}

}  // namespace

void add_train_command(CLI::App& app, Context& context) {
  CLI::App& train = add_group(app, "train", "train networks");
  add_job<HostJobOptions>(
      train, context,
      {.name = "host",
       .summary = "one small convolutional network",
       .examples = "  espalier train host\n"
                   "  espalier train host --data cifar10:DIR --device cuda --epochs 12 --batch 512\n"},
      train_host);
  add_job<PopulationOptions>(
      train, context,
      {.name = "population",
       .summary = "many small networks at once, which may grow",
       .examples = "  espalier train population --lanes 8 --host cifar_baseline --controller heuristic\n"
                   "  espalier train population --data cifar10:DIR --lanes 128 --batch 64 --device cuda\n"},
      train_population);
  add_train_ppo(train, context);
  add_train_linet(train, context);
}

}  // namespace espalier::cli
