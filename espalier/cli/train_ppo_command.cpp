// espalier train ppo
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>

#include "espalier/cli/commands.h"
#include "espalier/cli/train_screen.h"
#include "espalier/core/byte_size.h"
#include "espalier/train/ppo_job.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/audit/work_summary.h"

namespace espalier::cli {
namespace {

struct PpoCommandOptions : OnScreen<train::PpoJobOptions> {
  bool torch_profiler = false;
  std::string torch_profiler_dir;
  bool torch_profiler_summary = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    OnScreen::visit(v);
    v({.name = "torch-profiler",
       .help = "record the second round (or the only one) into trace.json, which Perfetto shows"},
      torch_profiler);
    v({.name = "torch-profiler-dir",
       .help = "where that file goes; without it into the run directory",
       .placeholder = "DIR"},
      torch_profiler_dir);
    v({.name = "torch-profiler-summary",
       .help = "record it and print where its time went: kernels by kind, and the slowest ops"},
      torch_profiler_summary);
  }
};

// Records one round of a run: the second, since the first measures and captures, or the only one.
class RoundProfile {
 public:
  RoundProfile(const PpoCommandOptions& options, c10::Device device)
      : options_(options),
        device_(device),
        is_wanted_(options.torch_profiler || options.torch_profiler_summary) {}

  void run_begins(const std::filesystem::path& run_dir, int64_t rounds_left) {
    folder_ =
        options_.torch_profiler_dir.empty() ? run_dir : std::filesystem::path(options_.torch_profiler_dir);
    if (is_wanted_ && rounds_left == 1) recording_.emplace(device_, "train ppo");
  }

  // What is to be said of it.
  std::string round_ends() {
    std::string text;
    if (recording_) {
      watch::wait_for(device_);
      const auto trace = recording_->finish();
      recording_.reset();
      is_wanted_ = false;
      std::filesystem::create_directories(folder_);
      const std::filesystem::path file = folder_ / "trace.json";
      trace->save(file.string());
      if (options_.torch_profiler_summary) text = watch::work_summary(*trace);
      text += fmt::format("trace: {}\n", file.string());
    } else if (is_wanted_) {
      watch::wait_for(device_);
      recording_.emplace(device_, "train ppo");
    }
    return text;
  }

 private:
  const PpoCommandOptions& options_;
  c10::Device device_;
  bool is_wanted_;
  std::filesystem::path folder_;
  std::optional<watch::Recording> recording_;
};

std::string step_text(int64_t round, const train::EpochRecord& epoch,
                      const std::vector<train::RewardTerms>& rewards, const PpoCommandOptions& options) {
  std::string text =
      fmt::format("round {}/{}  step {}/{}  validation accuracy {:.2f} %", round, options.rounds, epoch.epoch,
                  options.population.epochs, 100 * epoch.mean_validated().accuracy);
  if (epoch.epoch > 1) {  // the first has no decision before it
    double sum = 0;
    for (const train::RewardTerms& terms : rewards) sum = std::accumulate(terms.begin(), terms.end(), sum);
    text += fmt::format("  reward {:.3f}", sum / static_cast<double>(rewards.size()));
  }
  int64_t seeds = 0;
  for (const train::LaneRecord& lane : epoch.lanes)
    for (const train::SlotReport& slot : lane.slots) seeds += holds_seed(slot.state.stage) ? 1 : 0;
  return text + fmt::format("  {} {}  {:.1f} s\n", seeds, seeds == 1 ? "seed" : "seeds", epoch.seconds);
}

std::string round_text(const train::RoundRecord& round, int64_t rounds) {
  const train::EpisodeRecord& episode = round.episode;
  const auto lanes = static_cast<double>(episode.last.lanes.size());
  double kept = 0, added = 0;
  for (size_t i = 0; i < episode.added.size(); ++i) {
    kept += static_cast<double>(episode.seeds_kept[i]) / lanes;
    added += episode.added[i] / lanes;
  }
  std::string text = fmt::format(
      "round {}/{}  return {:.3f}  accuracy {:.2f} %  seeds kept {:.2f}  parameters +{:.1f} %", episode.round,
      rounds, episode.mean_return(), 100 * episode.mean_accuracy(), kept, 100 * added);
  if (const auto& learned = round.diagnostics) {
    const auto of = [&](policy::Diagnostic which) { return (*learned)[static_cast<size_t>(which)]; };
    text += fmt::format("  entropy {:.3f}  kl {:.4f}", of(policy::Diagnostic::kEntropy),
                        of(policy::Diagnostic::kApproxKl));
  }
  text += fmt::format("  {:.1f} s", episode.seconds + round.update_seconds);
  if (episode.num_lost() > 0) text += fmt::format("; {} lost: the loss was not finite", episode.num_lost());
  return text + "\n";
}

void print_started(train::PpoTrainer& trainer, const data::ResidentDataset& dataset,
                   const std::filesystem::path& run, const PpoCommandOptions& options) {
  fmt::print("{}: {} to train on, {} to validate; {} networks of {} parameters on {}\n", dataset.origin,
             dataset.train.num_samples(), dataset.validation.num_samples(),
             trainer.environments().num_lanes(), trainer.environments().host_parameters(),
             options.population.devices);
  const auto is_cpu = [](const DeviceName& device) { return device.kind == DeviceName::Kind::kCpu; };
  if (options.amp && std::ranges::any_of(train::devices_of(options.population), is_cpu))
    fmt::print("--amp: on the CPU networks are trained in fp32\n");
  if (trainer.rounds_done() > 0)
    fmt::print("goes on after round {} of {}\n", trainer.rounds_done(), options.population.resume);
  fmt::print("results: {}\n", run.string());
}

int train_ppo(const PpoCommandOptions& options, Context& context) {
  TrainScreen screen(context, "ppo", options.tui ? TrainScreen::Tui::kOn : TrainScreen::Tui::kOff);
  RoundProfile profile(options, train::policy_device_of(options));
  train::PpoEvents events;
  events.progress = screen.progress();
  events.run = screen.run_events();
  events.started = [&](train::PpoTrainer& trainer, const data::ResidentDataset& dataset,
                       const std::filesystem::path& run) {
    print_started(trainer, dataset, run, options);
    profile.run_begins(run, options.rounds - trainer.rounds_done());
    std::vector<c10::Device> devices;
    for (const DeviceName& device : train::devices_of(options.population))
      devices.push_back(data::torch_device(device));
    // A step is a pass over the training split on every device.
    screen.begin(run,
                 {.shape = watch::RunShape::kRounds,
                  .total = options.rounds,
                  .steps_a_round = options.population.epochs,
                  .samples_a_step = dataset.train.num_samples() * std::ssize(devices)},
                 devices);
  };
  if (!screen.is_live())
    events.step_done = [&](int64_t round, const train::EpochRecord& epoch,
                           const std::vector<train::RewardTerms>& rewards) {
      screen.say(step_text(round, epoch, rewards, options));
    };
  events.round_done = [&](const train::RoundRecord& round) {
    screen.say(round_text(round, options.rounds));
    if (const std::string text = profile.round_ends(); !text.empty()) screen.say(text);
  };
  const train::PpoResult result = train::run_ppo_job(options, events);
  screen.end();
  fmt::print("{} rounds in {:.1f} s: return {:.3f} at first, {:.3f} at last; validation accuracy {:.2f} %\n",
             result.rounds, result.seconds, result.first_return, result.last_return,
             100 * result.last_accuracy);
  if (!result.policy.empty()) fmt::print("the policy: {}\n", result.policy.string());
  fmt::print("results are in {}\n", result.run_dir.string());
  return 0;
}

}  // namespace

void add_train_ppo(CLI::App& train, Context& context) {
  add_job<PpoCommandOptions>(
      train, context,
      {.name = "ppo",
       .summary = "a policy that grows networks while they train",
       .examples =
           "  espalier train ppo --rounds 20 --envs 4 --episode-length 12\n"
           "  espalier train ppo --data cifar10:DIR --devices cuda:0 --gpu-preload --envs 32 --amp\n"
           "  espalier train ppo --resume policy.safetensors --save policy.safetensors --rounds 200\n"},
      train_ppo);
}

}  // namespace espalier::cli
