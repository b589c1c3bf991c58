// espalier train host, espalier train population (train ppo and linet: files of their own)
#include <fmt/ranges.h>

#include <algorithm>

#include "espalier/cli/commands.h"
#include "espalier/cli/train_screen.h"
#include "espalier/core/byte_size.h"
#include "espalier/train/host_job.h"
#include "espalier/train/population_job.h"

namespace espalier::cli {
namespace {

using HostJobOptions = OnScreen<train::HostJobOptions>;
using PopulationOptions = OnScreen<train::PopulationOptions>;

TrainScreen::Tui tui_of(bool is_wanted) {
  return is_wanted ? TrainScreen::Tui::kOn : TrainScreen::Tui::kOff;
}

// passes: over the training split in an epoch, those of all lanes together.
train::PopulationEvents events_of(TrainScreen& screen, int64_t epochs, int64_t passes) {
  train::PopulationEvents events;
  events.progress = screen.progress();
  events.run = screen.run_events();
  events.started = [&screen, epochs, passes](std::span<const train::DeviceStart> starts,
                                             const std::filesystem::path& run) {
    const data::ResidentDataset& dataset = *starts.front().dataset;
    std::vector<c10::Device> devices;
    std::vector<std::string> names;
    for (const train::DeviceStart& start : starts) {
      devices.push_back(start.dataset->device);
      names.push_back(devices.back().str());
    }
    fmt::print("{}: {} to train on, {} to validate, {} to test; {} {}\n", dataset.origin,
               dataset.train.num_samples(), dataset.validation.num_samples(), dataset.test.num_samples(),
               format_byte_size(dataset.bytes()),
               dataset.residency == data::Residency::kHost ? "in pinned host memory"
                                                           : fmt::format("on {}", fmt::join(names, ", ")));
    for (const auto& [data, plan] : starts)
      if (plan.budget_bytes > 0)
        fmt::print("memory of {}: {} planned of {}; CUDA itself took {} when it started\n",
                   data->device.str(), format_byte_size(plan.total_bytes()),
                   format_byte_size(plan.budget_bytes), format_byte_size(plan.context_bytes));
    if (dataset.format == MemoryFormat::kContiguous)
      fmt::print("memory format contiguous, for comparison: a step is timed after the first epoch\n");
    fmt::print("results: {}\n", run.string());
    screen.begin(run, {.total = epochs, .samples_a_step = passes * dataset.train.num_samples()}, devices);
  };
  events.formats_compared = [&screen](const train::FormatComparison& compared) {
    std::string text = fmt::format("contiguous: {:.3g} ms a step", compared.step_ms);
    if (const auto& other = compared.channels_last_ms)
      text += fmt::format(", {:.2f} times channels-last's {:.3g} ms\n", compared.step_ms / *other, *other);
    else
      text += "; the device has no room for a second population in channels-last to compare with\n";
    screen.say(text);
  };
  return events;
}

int train_host(const HostJobOptions& options, Context& context) {
  TrainScreen screen(context, "host", tui_of(options.tui));
  train::PopulationEvents events = events_of(screen, options.epochs, 1);
  events.epoch_done = [&](const train::EpochRecord& epoch) {
    const train::LaneRecord& lane = epoch.lanes.front();
    screen.say(fmt::format(
        "epoch {}/{}  loss {:.4f}  accuracy {:.2f} %  validation loss {:.4f}  accuracy {:.2f} %  {:.1f} "
        "s{}\n",
        epoch.epoch, options.epochs, lane.trained.loss, 100 * lane.trained.accuracy, lane.validated.loss,
        100 * lane.validated.accuracy, epoch.seconds,
        lane.outcome == train::LaneOutcome::kRolledBack ? "; not finite: rolled back, rate halved" : ""));
  };
  const train::PopulationResult result = run_host_job(options, events);
  screen.end();
  fmt::print("test accuracy {:.2f} %, loss {:.4f}, {:.1f} s in all; results are in {}\n",
             100 * result.mean().accuracy, result.mean().loss, result.seconds, result.run_dir.string());
  return 0;
}

// What is worth a line of its own: a lane that failed.
std::string failures_of(const train::EpochRecord& epoch) {
  std::string text;
  for (const train::LaneRecord& lane : epoch.lanes) {
    if (lane.outcome == train::LaneOutcome::kRolledBack)
      text +=
          fmt::format("  lane {}: the loss was not finite: rolled back, learning rate halved ({} of {})\n",
                      lane.lane, lane.num_rollbacks, train::PopulationTrainer::kMaxRollbacks);
    if (lane.outcome == train::LaneOutcome::kRetired && lane.trained.non_finite > 0)
      text += fmt::format("  lane {}: the loss was not finite again: retired, its last good state is kept\n",
                          lane.lane);
  }
  return text;
}

int train_population(const PopulationOptions& options, Context& context) {
  TrainScreen screen(context, "population", tui_of(options.tui));
  train::PopulationEvents events =
      events_of(screen, options.epochs, options.plan == "own" ? options.lanes : 1);
  events.epoch_done = [&](const train::EpochRecord& epoch) {
    double best = 0;
    int64_t seeds = 0;
    for (const train::LaneRecord& lane : epoch.lanes) {
      best = std::max(best, lane.validated.accuracy);
      for (const train::SlotReport& slot : lane.slots) seeds += holds_seed(slot.state.stage) ? 1 : 0;
    }
    std::string text = fmt::format(
        "epoch {}/{}  loss {:.4f}  accuracy {:.2f} %  validation accuracy {:.2f} %, best {:.2f} %  {} {}",
        epoch.epoch, options.epochs, epoch.mean_trained().loss, 100 * epoch.mean_trained().accuracy,
        100 * epoch.mean_validated().accuracy, 100 * best, seeds, seeds == 1 ? "seed" : "seeds");
    if (epoch.num_captures > 0)
      text += fmt::format("  {} captured in {:.2f} s", epoch.num_captures, epoch.capture_seconds);
    screen.say(text + fmt::format("  {:.1f} s\n", epoch.seconds) + failures_of(epoch));
  };
  const train::PopulationResult result = run_population_job(options, events);
  screen.end();
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
       .examples =
           "  espalier train population --lanes 8 --host cifar_baseline --controller heuristic\n"
           "  espalier train population --data cifar10:DIR --lanes 128 --batch 64 --devices cuda:0,cuda:1\n"},
      train_population);
  add_train_ppo(train, context);
  add_train_linet(train, context);
}

}  // namespace espalier::cli
