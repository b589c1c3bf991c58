// espalier train ppo
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/comparison_show.h"
#include "espalier/cli/commands/comparison_text.h"
#include "espalier/cli/commands/score_text.h"
#include "espalier/cli/commands/train/screen.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/jobs/facts/precision_name.h"
#include "espalier/jobs/ppo.h"
#include "espalier/tensor/device.h"
#include "espalier/train/control/policy_file.h"
#include "espalier/train/population/setup.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/audit/work_summary.h"

namespace espalier::cli {
namespace {

struct PpoCommand : PpoFlags {
  bool torch_profiler = false;
  std::string torch_profiler_dir;
  bool torch_profiler_summary = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    PpoFlags::visit(v);
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
  RoundProfile(const PpoCommand& options, c10::Device device)
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
  const PpoCommand& options_;
  c10::Device device_;
  bool is_wanted_;
  std::filesystem::path folder_;
  std::optional<watch::Recording> recording_;
};

std::string step_text(int64_t round, const train::EpochRecord& epoch, const train::PpoConfig& options) {
  std::string text = fmt::format("round {}/{}  step {}/{}  validation accuracy {}", round, options.rounds,
                                 epoch.epoch, options.population.epochs,
                                 accuracy_text(epoch.mean_validated().accuracy, epoch.is_validated ? 1 : 0));
  if (epoch.epoch > 1) {  // the first has no decision before it
    double sum = 0;
    for (const train::LaneRecord& lane : epoch.lanes) sum += lane.reward.sum();
    text += fmt::format("  reward {:.3f}", sum / static_cast<double>(epoch.lanes.size()));
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
    text += fmt::format("  entropy {:.1f} % of its maximum  KL {:.4f}",
                        100 * of(policy::Diagnostic::kEntropy), of(policy::Diagnostic::kApproxKl));
  }
  text += fmt::format("  {:.1f} s", episode.seconds + round.update_seconds);
  if (episode.num_lost() > 0) text += fmt::format("; {} collapsed", episode.num_lost());
  return text + "\n";
}

void print_started(train::PpoTrainer& trainer, const data::ResidentDataset& dataset,
                   const std::filesystem::path& run, const PpoCommand& flags) {
  std::vector<std::string> devices;
  for (const DeviceName& device : train::devices_of(flags.ppo.population))
    devices.push_back(fmt::format(
        "{} ({})", device.text(),
        jobs::precision_name(train::precision_type(flags.ppo.population.precision, torch_device(device)))));
  fmt::print("{}: {} to train on, {} to validate; {} networks of {} parameters on {}\n", dataset.origin,
             dataset.train.num_samples(), dataset.validation.num_samples(),
             trainer.environments().num_lanes(), trainer.environments().host_parameters(),
             fmt::join(devices, ","));
  if (trainer.rounds_done() > 0)
    fmt::print("goes on after round {} of {}\n", trainer.rounds_done(),
               flags.run.resume.empty() ? run.string() : flags.run.resume);
  fmt::print("results: {}\n", run.string());
}

// The sizes of a policy that the run begins with.
nlohmann::ordered_json policy_sizes(const std::string& file) {
  const policy::NetworkOptions network = train::network_options_of(read_tensors(file));
  return {{"encoder-size", network.encoder_size}, {"hidden-size", network.hidden_size}};
}

// Shows a training while it runs, and what it came to.
class PpoShow {
 public:
  PpoShow(PpoCommand flags, Context& context)
      : flags_(std::move(flags)),
        screen_(context, "ppo"),
        alarm_(flags_.ppo.population.learning_rate),
        profile_(flags_, train::policy_device_of(flags_.ppo)) {}
  PpoShow(const PpoShow&) = delete;
  PpoShow& operator=(const PpoShow&) = delete;

  // Until this object is gone.
  jobs::PpoEvents events() {
    jobs::PpoEvents events;
    events.progress = screen_.progress();
    events.run = screen_.run_events();
    events.started = [this](train::PpoTrainer& trainer, const data::ResidentDataset& dataset,
                            const std::filesystem::path& run) { begin(trainer, dataset, run); };
    if (!screen_.is_live())
      events.step_done = [this](int64_t round, const train::EpochRecord& epoch) {
        screen_.say(step_text(round, epoch, flags_.ppo));
      };
    events.round_done = [this](const train::RoundRecord& round) {
      screen_.say(round_text(round, flags_.ppo.rounds));
      if (const auto text = alarm_.check(round.episode.last.mean_trained().loss, num_classes_))
        screen_.warn(*text);
      if (const std::string text = profile_.round_ends(); !text.empty()) screen_.say(text);
    };
    return events;
  }

  void end(const jobs::PpoResult& result) {
    screen_.end();
    fmt::print(
        "{} round{} in {:.1f} s: return {:.3f} at first, {:.3f} at last; validation accuracy {:.2f} %\n",
        result.rounds, result.rounds == 1 ? "" : "s", result.seconds, result.first_return, result.last_return,
        100 * result.last_accuracy);
    if (!result.policy.empty()) fmt::print("the policy: {}\n", result.policy.string());
    fmt::print("results are in {}\n", result.run_dir.string());
  }

 private:
  void begin(train::PpoTrainer& trainer, const data::ResidentDataset& dataset,
             const std::filesystem::path& run) {
    const train::PpoConfig& options = flags_.ppo;
    num_classes_ = dataset.num_classes();
    print_started(trainer, dataset, run, flags_);
    profile_.run_begins(run, options.rounds - trainer.rounds_done());
    std::vector<c10::Device> devices;
    for (const DeviceName& device : train::devices_of(options.population))
      devices.push_back(torch_device(device));
    const train::PopulationConfig& networks = options.population;
    // Without --batches-per-step a step is a pass over the training split on every device.
    const int64_t samples = networks.batches_per_step > 0
                                ? networks.batches_per_step * networks.batch * networks.lanes
                                : dataset.train.num_samples() * std::ssize(devices);
    screen_.begin(run,
                  {.shape = watch::RunShape::kRounds,
                   .total = options.rounds,
                   .steps_a_round = options.population.epochs,
                   .samples_a_step = samples},
                  devices);
  }

  PpoCommand flags_;
  TrainScreen screen_;
  LossAlarm alarm_;
  RoundProfile profile_;
  int64_t num_classes_ = 0;
};

// One policy after the other: nothing of one depends on the other, so it does not matter in which order.
int train_reward_ab(const PpoCommand& flags, Context& context) {
  const jobs::RewardAbJob job = flags.reward_ab_job();
  std::optional<PpoShow> show;
  const std::filesystem::path folder =
      std::filesystem::path(job.comparison.run.run_dir).parent_path();  // of all three runs
  ComparisonShow comparison(
      context,
      fmt::format("stopped before the comparison began; to go on: the same command with --run-dir {}\n",
                  folder.string()));
  jobs::RewardAbEvents events;
  events.learning = [&](size_t which) {
    PpoCommand own = flags;
    own.ppo = job.learning[which].ppo;
    own.run = job.learning[which].run;
    show.emplace(std::move(own), context);
    return show->events();
  };
  events.learned = [&](size_t, const jobs::PpoResult& result) {
    show->end(result);
    show.reset();
  };
  events.comparison = comparison.events();
  const jobs::EvaluateResult result = jobs::run_reward_ab_job(job, events);
  fmt::print("{}", comparison_text(job.comparison.evaluate, result));
  return 0;
}

int train_ppo(const PpoCommand& flags, Context& context) {
  if (!flags.reward_ab.empty()) {
    if (!context.world().is_alone())
      fail_usage("--reward-ab {}: trains in one process, got {} ranks; start it without torchrun",
                 flags.reward_ab, context.world().size());
    return train_reward_ab(flags, context);
  }
  PpoShow show(flags, context);
  const jobs::PpoResult result = jobs::run_ppo_job(flags.job(), show.events(), context.world());
  if (context.world().leads()) show.end(result);
  return 0;
}

}  // namespace

void add_train_ppo(CLI::App& train, Context& context) {
  add_job<PpoCommand>(
      train, context,
      {.name = "ppo",
       .summary = "a policy that grows networks while they train",
       .examples = "  espalier train ppo --rounds 20 --lanes 4 --episode-length 12\n"
                   "  espalier train ppo --data cifar10:DIR --devices cuda:0 --lanes 32 --batch 64\n"
                   "  espalier train ppo --resume policy.safetensors --save policy.safetensors --rounds 200\n"
                   "  espalier train ppo --reward-ab shaped.json,sparse.json --lanes 8 --rounds 20\n",
       .first = {"data", "rounds", "lanes", "episode-length", "batch", "host", "devices", "run-dir", "resume",
                 "save"},
       .config_in_file = policy_sizes,
       .processes = Processes::kMany},
      train_ppo);
}

}  // namespace espalier::cli
