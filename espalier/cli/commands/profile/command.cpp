// espalier profile host | population | linet | ppo: what the steps of a job do, where the time goes, and
// where the host waits for the device
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/profile/rehearsed_episode.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/data/cache.h"
#include "espalier/jobs/ppo.h"
#include "espalier/jobs/saved/named_controller.h"
#include "espalier/jobs/scope.h"
#include "espalier/tensor/device.h"
#include "espalier/train/linet/trainer.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard_setup.h"
#include "espalier/watch/audit/layout.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/audit/waits.h"
#include "espalier/watch/audit/work_summary.h"

namespace espalier::cli {
namespace {

constexpr int kWarmUpSteps = 3;

struct ProfileFlags {
  int64_t steps = 3;
  bool layout = false;
  bool sync = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "steps", .help = "steps to look at, after some that warm up", .low = 1, .high = 1000}, steps);
    v({.name = "layout", .help = "only which ops ran on which layouts, and every conversion between them"},
      layout);
    v({.name = "sync", .help = "only where the host waits for the device"}, sync);
  }
};

// A job's own flags and these.
template <class Job>
struct ProfileOptions : Job {
  ProfileFlags flags;

  template <class Visitor>
  void visit(Visitor&& v) {
    flags.visit(v);
    Job::visit(v);
  }
};

struct Profiled {
  std::string what;  // "8 lanes of cifar_baseline, batch 512"
  c10::Device device;
  std::string step_text;                // what a step is here
  std::function<void()> step;           // as the job does it
  std::function<void()> batch;          // one batch of training as the job does it
  std::function<void()> batch_eagerly;  // the same op by op
  bool is_replayed = false;             // batch() replays a graph
  std::function<void()> warm_up;        // before the steps that are looked at
  std::function<std::string()> seen;    // after them: what grew; may be empty
};

// Eagerly every op is seen; replayed, the kernels that run in truth.
void print_layout(const Profiled& job, int steps) {
  for (int i = 0; i < kWarmUpSteps; ++i) job.batch_eagerly();
  const watch::LayoutReport eager = watch::audit_layout(job.device, steps, job.batch_eagerly);
  fmt::print("\nbatches op by op\n{}", eager.text());
  int64_t conversions = eager.num_conversions();
  if (job.is_replayed) {
    for (int i = 0; i < kWarmUpSteps; ++i) job.batch();
    const watch::LayoutReport replayed = watch::audit_layout(job.device, steps, job.batch);
    fmt::print("\nbatches replayed as captured\n{}", replayed.text());
    conversions += watch::replayed_conversions(replayed, eager);
  }
  fmt::print("\nconversions between layouts: {}\n", conversions);
}

int print_profile(const Profiled& job, const ProfileFlags& flags, const std::filesystem::path& folder) {
  const auto steps = static_cast<int>(flags.steps);
  const bool all = flags.layout == flags.sync;
  fmt::print("{}, on {}: {} {}\n", job.what, job.device.str(), steps, job.step_text);
  job.warm_up();
  if (all || flags.sync) {
    const auto trace = watch::record_steps(job.device, "profile", steps, job.step);
    const watch::SyncReport waits = watch::read_waits(*trace, job.device, steps);
    if (job.seen) fmt::print("{}\n", job.seen());
    if (all) fmt::print("\n{}", watch::work_summary(*trace));
    fmt::print("\n{}", waits.text());
    std::filesystem::create_directories(folder);
    trace->save((folder / "trace.json").string());
  }
  if (all || flags.layout) print_layout(job, steps);
  if (all || flags.sync) fmt::print("\ntrace, for ui.perfetto.dev: {}\n", (folder / "trace.json").string());
  return 0;
}

// A trainer's batches, epoch after epoch. `Step`: TrainStep or LinetStep.
template <class Step>
Profiled batches_of(Step& step, int64_t steps_per_epoch, std::string what) {
  auto in_epochs = [&step, steps_per_epoch, done = int64_t{0}](auto run) mutable {
    if (done % steps_per_epoch == 0) step.begin_epoch(0);
    done += 1;
    (step.*run)();
  };
  return {.what = std::move(what),
          .device = step.device(),
          .step_text = "steps, a batch each",
          .step = [in_epochs]() mutable { in_epochs(&Step::run); },
          .batch = [in_epochs]() mutable { in_epochs(&Step::run); },
          .batch_eagerly = [in_epochs]() mutable { in_epochs(&Step::run_eagerly); },
          .is_replayed = step.graphs().is_capturing(),
          .warm_up =
              [in_epochs]() mutable {
                for (int i = 0; i < 2 * kWarmUpSteps; ++i) in_epochs(&Step::run);
              }};
}

// Decision steps of networks that grow, in the second half of an episode that was played before.
Profiled steps_of(train::PopulationTrainer& environments, RehearsedEpisode& episode, int64_t steps,
                  std::string what) {
  train::Shard& first = environments.shard(0);
  Profiled profiled = batches_of(first.step(), first.batches_per_epoch(), std::move(what));
  profiled.step_text = "steps: an epoch, validation, a decision";
  profiled.step = [&episode] { episode.step(); };
  profiled.warm_up = [&episode, steps] { episode.rehearse(steps); };
  profiled.seen = [&episode] { return episode.text(); };
  return profiled;
}

// An episode that the steps to look at fit into, with the one after them that decides nothing.
int64_t episode_for(int64_t epochs, const ProfileFlags& flags) {
  return std::max(epochs, flags.steps + 1);
}

std::filesystem::path folder_of(const std::string& run_dir, const char* job) {
  return run_dir.empty() ? std::filesystem::path("runs") / fmt::format("profile-{}", job)
                         : std::filesystem::path(run_dir);
}

std::string text_of(const train::PopulationConfig& options) {
  return fmt::format("{} {} of {}, batch {}", options.lanes, options.lanes == 1 ? "lane" : "lanes",
                     options.host, options.batch);
}

std::string text_of(const std::vector<DeviceName>& devices) {
  std::vector<std::string> names;
  for (const DeviceName& device : devices) names.push_back(device.text());
  return fmt::format("{}", fmt::join(names, ","));
}

int profile_batches(const train::PopulationConfig& options, const ProfileFlags& flags,
                    const std::filesystem::path& folder, Context& context) {
  const std::vector<DeviceName> devices = train::devices_of(options);
  if (devices.size() > 1)
    fail_usage("--devices {}: batches are profiled on one device, got {} of them", text_of(devices),
               devices.size());
  const jobs::JobScope scope(options, train::torch_devices_of(options));
  train::Shard trainer(train::shard_on(devices.front(), options, context.progress()));
  return print_profile(batches_of(trainer.step(), trainer.batches_per_epoch(), text_of(options)), flags,
                       folder);
}

// Steps begin with fresh networks and a fresh policy, whatever a job would begin with or leave behind.
void refuse_unused(const char* flag, const std::string& given) {
  if (!given.empty())
    fail_usage("{} {}: profile looks at a few steps of fresh networks; leave it out", flag, given);
}

// Batches where nothing grows, else decision steps.
int profile_population(const ProfileOptions<PopulationFlags>& options, Context& context) {
  refuse_unused("--from", options.from);
  refuse_unused("--resume", options.run.resume);
  const std::filesystem::path folder = folder_of(options.run.run_dir, "population");
  train::PopulationConfig job = options.population;
  jobs::check_only_controller(job.controller, jobs::kPopulationFlags.controller);
  if (job.controller == "none") return profile_batches(job, options.flags, folder, context);
  job.epochs = episode_for(job.epochs, options.flags);
  const jobs::NamedController named(job.controller, jobs::kPopulationFlags);
  job = named.environments(job).population;
  const jobs::JobScope scope(job, train::torch_devices_of(job));
  std::vector<train::ShardSetup> shards;
  for (const DeviceName& device : train::devices_of(job))
    shards.push_back(train::shard_on(device, job, context.progress()));
  const c10::Device acting = shards.front().dataset->device;
  train::PopulationTrainer environments(job, std::move(shards), acting, train::OnFailure::kRollBack,
                                        named.reading(job));
  const auto controller = named.make(named.environments(job), environments.population(0));
  RehearsedEpisode episode(environments, *controller);
  return print_profile(steps_of(environments, episode, options.flags.steps, text_of(job)), options.flags,
                       folder);
}

int profile_linet(const ProfileOptions<LinetFlags>& flags, Context& context) {
  refuse_unused("--resume", flags.run.resume);
  const train::LinetConfig options = train::checked_options(flags.linet);  // before data is loaded
  const DeviceName device = choose_device(options.device);
  const jobs::JobScope scope(options, {torch_device(device)});
  train::LinetTrainer trainer(
      options,
      data::DatasetCache::instance().ensure(options.source, options.resident, device, context.progress()),
      device);
  return print_profile(batches_of(trainer.step(), trainer.steps_per_epoch(),
                                  fmt::format("{} of {} streams, batch {}", options.model,
                                              trainer.stream_names().size(), options.batch)),
                       flags.flags, folder_of(flags.run.run_dir, "linet"));
}

int profile_ppo(const ProfileOptions<PpoFlags>& options, Context& context) {
  refuse_unused("--reward-ab", options.reward_ab);
  refuse_unused("--save", options.save);
  refuse_unused("--resume", options.run.resume);
  train::PpoConfig job = options.ppo;
  job.population.epochs = episode_for(job.population.epochs, options.flags);
  const jobs::JobScope scope(job.population, train::torch_devices_of(job));
  train::PpoTrainer trainer(job, jobs::shards_of(job, context.progress()));
  RehearsedEpisode episode(trainer.environments(), trainer.controller());
  return print_profile(steps_of(trainer.environments(), episode, options.flags.steps,
                                fmt::format("{}, controller {}", text_of(job.population), job.controller)),
                       options.flags, folder_of(options.run.run_dir, "ppo"));
}

}  // namespace

void add_profile_command(CLI::App& app, Context& context) {
  CLI::App& profile = add_group(
      app, "profile", "what the steps of a job do: a trace, kernels by kind, layouts, waits of the host");
  add_job<ProfileOptions<HostFlags>>(profile, context,
                                     {.name = "host",
                                      .summary = "steps of `espalier train host` with the same flags",
                                      .examples = "  espalier profile host --device cuda --batch 512\n"},
                                     [](const ProfileOptions<HostFlags>& options, Context& running) {
                                       refuse_unused("--resume", options.run.resume);
                                       return profile_batches(options.one_lane(), options.flags,
                                                              folder_of(options.run.run_dir, "host"),
                                                              running);
                                     });
  add_job<ProfileOptions<PopulationFlags>>(
      profile, context,
      {.name = "population",
       .summary = "steps of `espalier train population` with the same flags",
       .examples = "  espalier profile population --lanes 128 --batch 64\n"
                   "  espalier profile population --layout --devices cuda\n"
                   "  espalier profile population --sync --controller random --epochs 12\n"},
      profile_population);
  add_job<ProfileOptions<LinetFlags>>(
      profile, context,
      {.name = "linet",
       .summary = "steps of `espalier train linet` with the same flags",
       .examples = "  espalier profile linet --model li_resnet50 --batch 64 --device cuda\n"},
      profile_linet);
  add_job<ProfileOptions<PpoFlags>>(profile, context,
                                    {.name = "ppo",
                                     .summary = "steps of `espalier train ppo` with the same flags",
                                     .examples = "  espalier profile ppo --sync --lanes 8\n"
                                                 "  espalier profile ppo --sync --controller heuristic\n"},
                                    profile_ppo);
}

}  // namespace espalier::cli
