// espalier train ppo
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>

#include "espalier/cli/commands.h"
#include "espalier/cli/lane_view.h"
#include "espalier/cli/run_messages.h"
#include "espalier/core/byte_size.h"
#include "espalier/train/ppo_job.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/audit/work_summary.h"
#include "espalier/watch/terminal.h"

namespace espalier::cli {
namespace {

struct PpoCommandOptions : train::PpoJobOptions {
  bool tui = true;
  bool torch_profiler = false;
  std::string torch_profiler_dir;
  bool torch_profiler_summary = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    train::PpoJobOptions::visit(v);
    v({.name = "tui", .help = "a live view of the networks, where standard output is a terminal"}, tui);
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

  void round_ends() {
    if (recording_) {
      watch::wait_for(device_);
      const auto trace = recording_->finish();
      recording_.reset();
      is_wanted_ = false;
      std::filesystem::create_directories(folder_);
      const std::filesystem::path file = folder_ / "trace.json";
      trace->save(file.string());
      if (options_.torch_profiler_summary) fmt::print("{}", watch::work_summary(*trace));
      fmt::print("trace: {}\n", file.string());
    } else if (is_wanted_) {
      watch::wait_for(device_);
      recording_.emplace(device_, "train ppo");
    }
  }

 private:
  const PpoCommandOptions& options_;
  c10::Device device_;
  bool is_wanted_;
  std::filesystem::path folder_;
  std::optional<watch::Recording> recording_;
};

void print_round(const train::RoundRecord& round, int64_t rounds) {
  const train::EpisodeRecord& episode = round.episode;
  const auto lanes = static_cast<double>(episode.last.lanes.size());
  double kept = 0, added = 0;
  for (size_t i = 0; i < episode.added.size(); ++i) {
    kept += static_cast<double>(episode.seeds_kept[i]) / lanes;
    added += episode.added[i] / lanes;
  }
  fmt::print("round {}/{}  return {:.3f}  accuracy {:.2f} %  seeds kept {:.2f}  parameters +{:.1f} %",
             episode.round, rounds, episode.mean_return(), 100 * episode.mean_accuracy(), kept, 100 * added);
  if (const auto& learned = round.diagnostics) {
    const auto of = [&](policy::Diagnostic which) { return (*learned)[static_cast<size_t>(which)]; };
    fmt::print("  entropy {:.3f}  kl {:.4f}", of(policy::Diagnostic::kEntropy),
               of(policy::Diagnostic::kApproxKl));
  }
  fmt::print("  {:.1f} s", episode.seconds + round.update_seconds);
  if (episode.num_lost() > 0) fmt::print("; {} lost: the loss was not finite", episode.num_lost());
  fmt::print("\n");
}

int train_ppo(const PpoCommandOptions& options, Context& context) {
  const bool is_live = options.tui && watch::is_interactive(STDOUT_FILENO);
  std::optional<LaneView> view;
  RoundProfile profile(options, train::policy_device_of(options));
  train::PpoEvents events;
  if (!is_live) events.progress = context.progress();
  events.run = run_events(context);
  events.started = [&](train::PpoTrainer& trainer, const data::ResidentDataset& dataset,
                       const std::filesystem::path& run) {
    fmt::print("{}: {} to train on, {} to validate; {} networks of {} parameters on {}\n", dataset.origin,
               dataset.train.num_samples(), dataset.validation.num_samples(),
               trainer.environments().num_lanes(), trainer.environments().host_parameters(), options.devices);
    if (options.amp)
      for (const DeviceName& device : train::devices_of(options))
        if (device.kind == DeviceName::Kind::kCpu) {
          fmt::print("--amp: on the CPU networks are trained in fp32\n");
          break;
        }
    if (trainer.rounds_done() > 0)
      fmt::print("goes on after round {} of {}\n", trainer.rounds_done(), options.population.resume);
    fmt::print("results: {}\n", run.string());
    std::fflush(stdout);
    profile.run_begins(run, options.rounds - trainer.rounds_done());
    if (!is_live) return;
    std::vector<std::string> slots;
    for (const grow::SlotSpec& slot : trainer.environments().population(0).slots())
      slots.push_back(slot.name);
    view.emplace(std::move(slots));
  };
  if (is_live)
    events.step_done = [&](int64_t round, const train::EpochRecord& epoch,
                           const std::vector<train::RewardTerms>&) {
      const std::string title = fmt::format("round {}/{}, step {}/{}", round, options.rounds, epoch.epoch,
                                            options.population.epochs);
      fmt::print("{}", view->show(title, epoch, watch::columns(STDOUT_FILENO)));
      std::fflush(stdout);
    };
  events.round_done = [&](const train::RoundRecord& round) {
    if (view) fmt::print("{}", view->clear());
    print_round(round, options.rounds);
    profile.round_ends();
    std::fflush(stdout);
  };
  const train::PpoResult result = train::run_ppo_job(options, events);
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
