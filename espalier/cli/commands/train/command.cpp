// espalier train host, espalier train population (train ppo and linet: files of their own)
#include <fmt/ranges.h>

#include <algorithm>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/score_text.h"
#include "espalier/cli/commands/train/screen.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/jobs/population.h"

namespace espalier::cli {
namespace {

// What the lines of epochs need to know of the data.
struct DataFacts {
  int64_t num_classes = 0;
  int64_t num_validation = 0;
};

// Samples of all lanes together, between two decisions.
int64_t samples_a_step(const train::PopulationConfig& options, const data::ResidentDataset& dataset) {
  if (options.batches_per_step > 0) return options.batches_per_step * options.batch * options.lanes;
  return dataset.train.num_samples() * (options.plan == data::PlanKind::kOwn ? options.lanes : 1);
}

// facts: filled when the job starts.
jobs::PopulationEvents events_of(TrainScreen& screen, const train::PopulationConfig& options,
                                 DataFacts& facts) {
  jobs::PopulationEvents events;
  events.progress = screen.progress();
  events.run = screen.run_events();
  events.started = [&screen, &facts, &options](std::span<const train::DeviceStart> starts,
                                               const std::filesystem::path& run) {
    const data::ResidentDataset& dataset = *starts.front().dataset;
    facts = {dataset.num_classes(), dataset.validation.num_samples()};
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
        fmt::print(
            "memory of {}: {} planned of {}; CUDA itself took {} when it started{}\n", data->device.str(),
            format_byte_size(plan.total_bytes()), format_byte_size(plan.budget_bytes),
            format_byte_size(plan.context_bytes),
            plan.unknown.empty() ? "" : fmt::format("; not counted: {}", fmt::join(plan.unknown, ", ")));
    if (dataset.format == MemoryFormat::kContiguous)
      fmt::print("memory format contiguous, for comparison: a step is timed after the first epoch\n");
    fmt::print("results: {}\n", run.string());
    screen.begin(run, {.total = options.epochs, .samples_a_step = samples_a_step(options, dataset)}, devices);
  };
  events.formats_compared = [&screen](const train::FormatComparison& compared) {
    std::string text = fmt::format("contiguous: {:.3g} ms per step", compared.step_ms);
    if (const auto& other = compared.channels_last_ms)
      text += fmt::format(", {:.2f} times channels-last's {:.3g} ms\n", compared.step_ms / *other, *other);
    else
      text += "; the device has no room for a second population in channels-last to compare with\n";
    screen.say(text);
  };
  return events;
}

const char* reason_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSound:
      return "sound";
    case Verdict::kNotFinite:
      return "the loss was not finite";
    case Verdict::kLossJumped:
      return "the loss jumped";
    case Verdict::kGuessing:
      return "accuracy fell back to guessing";
    case Verdict::kDoubtful:
      return "validation alone says so";
  }
  return "?";
}

int train_host(const HostFlags& flags, Context& context) {
  const train::PopulationConfig& options = flags.population;
  TrainScreen screen(context, "host");
  DataFacts facts;
  LossAlarm alarm(options.learning_rate);
  jobs::PopulationEvents events = events_of(screen, options, facts);
  events.epoch_done = [&](const train::EpochRecord& epoch) {
    const train::LaneRecord& lane = epoch.lanes.front();
    screen.say(fmt::format(
        "epoch {}/{}  loss {}  accuracy {:.2f} %  validation loss {}  accuracy {}  {:.1f} s{}\n", epoch.epoch,
        options.epochs, loss_text(lane.trained.loss), 100 * lane.trained.accuracy,
        loss_text(lane.validated.loss, facts.num_validation),
        accuracy_text(lane.validated.accuracy, facts.num_validation), epoch.seconds,
        lane.outcome == LaneOutcome::kRolledBack
            ? fmt::format("; {}: rolled back, rate x {:.4g}", reason_of(lane.verdict), lane.rate_factor)
            : ""));
    if (const auto text = alarm.check(lane.trained.loss, facts.num_classes)) screen.warn(*text);
  };
  const jobs::PopulationResult result = run_population_job(flags.job(), events, context.world());
  screen.end();
  if (!context.world().leads()) return 0;
  fmt::print("test accuracy {:.2f} %, loss {}, {:.1f} s in all; results are in {}\n",
             100 * result.mean().accuracy, loss_text(result.mean().loss), result.seconds,
             result.run_dir.string());
  return 0;
}

// What is worth a line of its own: a lane that collapsed.
std::string failures_of(const train::EpochRecord& epoch) {
  std::string text;
  for (const train::LaneRecord& lane : epoch.lanes) {
    if (!is_collapse(lane.verdict)) continue;
    const char* const reason = reason_of(lane.verdict);
    if (lane.outcome == LaneOutcome::kRolledBack && !lane.blamed.empty())
      text += fmt::format("  lane {}: {}: rolled back, and not tried again in {} of its slots\n", lane.lane,
                          reason, lane.blamed.size());
    else if (lane.outcome == LaneOutcome::kRolledBack)
      text += fmt::format("  lane {}: {}: rolled back, learning rate x {:.4g} from here on\n", lane.lane,
                          reason, lane.rate_factor);
    else
      text += fmt::format("  lane {}: {} again: retired, its last good state is kept\n", lane.lane, reason);
  }
  return text;
}

int train_population(const PopulationFlags& flags, Context& context) {
  const train::PopulationConfig& options = flags.population;
  TrainScreen screen(context, "population");
  DataFacts facts;
  LossAlarm alarm(options.learning_rate);
  jobs::PopulationEvents events = events_of(screen, options, facts);
  events.epoch_done = [&](const train::EpochRecord& epoch) {
    const int64_t scored = epoch.is_validated ? facts.num_validation : 0;
    double best = 0;
    int64_t seeds = 0;
    for (const train::LaneRecord& lane : epoch.lanes) {
      best = std::max(best, lane.validated.accuracy);
      for (const train::SlotReport& slot : lane.slots) seeds += holds_seed(slot.state.stage) ? 1 : 0;
    }
    std::string text =
        fmt::format("{} {}/{}  loss {}  accuracy {:.2f} %  validation accuracy {}, best {}  {} {}",
                    options.batches_per_step > 0 ? "step" : "epoch", epoch.epoch, options.epochs,
                    loss_text(epoch.mean_trained().loss), 100 * epoch.mean_trained().accuracy,
                    accuracy_text(epoch.mean_validated().accuracy, scored), accuracy_text(best, scored),
                    seeds, seeds == 1 ? "seed" : "seeds");
    if (epoch.graphs.captures > 0)
      text += fmt::format("  {} captured in {:.2f} s", epoch.graphs.captures, epoch.graphs.capture_seconds);
    screen.say(text + fmt::format("  {:.1f} s\n", epoch.seconds) + failures_of(epoch));
    if (const auto told = alarm.check(epoch.mean_trained().loss, facts.num_classes)) screen.warn(*told);
  };
  const jobs::PopulationResult result = run_population_job(flags.job(), events, context.world());
  screen.end();
  if (!context.world().leads()) return 0;
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
  add_job<HostFlags>(
      train, context,
      {.name = "host",
       .summary = "one small convolutional network",
       .examples = "  espalier train host\n"
                   "  espalier train host --data cifar10:DIR --device cuda --epochs 12 --batch 512\n"
                   "  torchrun --nproc-per-node 2 -m espalier train host --batch 512 --run-dir runs/both\n",
       .first = {"data", "epochs", "batch", "learning-rate", "device", "precision", "run-dir", "resume",
                 "seed"},
       .processes = Processes::kMany},
      train_host);
  add_job<PopulationFlags>(
      train, context,
      {.name = "population",
       .summary = "many small networks at once, which may grow",
       .examples =
           "  espalier train population --lanes 8 --host cifar_baseline --controller heuristic\n"
           "  espalier train population --data cifar10:DIR --lanes 128 --batch 64 --devices cuda:0,cuda:1\n"
           "  torchrun --nproc-per-node 8 -m espalier train population --lanes 1024 --run-dir runs/wide\n",
       .first = {"data", "lanes", "host", "controller", "epochs", "batch", "learning-rate", "devices",
                 "run-dir", "resume"},
       .processes = Processes::kMany},
      train_population);
  add_train_ppo(train, context);
  add_train_linet(train, context);
}

}  // namespace espalier::cli
