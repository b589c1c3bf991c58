// espalier profile host | population | linet | ppo: what the steps of a job do, where the time goes, and
// where the host waits for the device
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "espalier/cli/commands.h"
#include "espalier/core/error.h"
#include "espalier/data/cache.h"
#include "espalier/train/host_job.h"
#include "espalier/train/linet_trainer.h"
#include "espalier/train/ppo_job.h"
#include "espalier/train/site.h"
#include "espalier/watch/audit/layout_audit.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/audit/sync_audit.h"
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
    v({.name = "steps", .help = "to look at, after some that warm up", .low = 1, .high = 1000}, steps);
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
  if (all || flags.sync) {
    for (int i = 0; i < 2 * kWarmUpSteps; ++i) job.step();
    const auto trace = watch::record_steps(job.device, "profile", steps, job.step);
    const watch::SyncReport waits = watch::read_waits(*trace, job.device, steps);
    if (all) fmt::print("\n{}", watch::work_summary(*trace));
    fmt::print("\n{}host waits a step: {:.3g}\n", waits.text(),
               static_cast<double>(waits.num_waits()) / static_cast<double>(steps));
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
          .is_replayed = step.graphs().is_capturing()};
}

std::filesystem::path folder_of(const std::string& run_dir, const char* job) {
  return run_dir.empty() ? std::filesystem::path("runs") / fmt::format("profile-{}", job)
                         : std::filesystem::path(run_dir);
}

std::string text_of(const train::PopulationOptions& options) {
  return fmt::format("{} {} of {}, batch {}", options.lanes, options.lanes == 1 ? "lane" : "lanes",
                     options.host, options.batch);
}

int profile_lanes(const train::PopulationOptions& options, const ProfileFlags& flags, const char* job,
                  Context& context) {
  const std::vector<DeviceName> devices = train::devices_of(options);
  if (devices.size() > 1) fail_usage("--devices {}: batches are profiled on one device", options.devices);
  const train::Site site = train::site_on(devices.front(), options, context.progress());
  train::PopulationTrainer trainer(options, site.setup);
  return print_profile(batches_of(trainer.step(), trainer.steps_per_epoch(), text_of(options)), flags,
                       folder_of(options.run_dir, job));
}

int profile_linet(const ProfileOptions<train::LinetOptions>& options, Context& context) {
  const DeviceName device = data::choose_device(options.device);
  train::LinetTrainer trainer(
      options,
      data::DatasetCache::instance().ensure(options.source, options.resident, device, context.progress()),
      device);
  return print_profile(batches_of(trainer.step(), trainer.steps_per_epoch(),
                                  fmt::format("{} of {} streams, batch {}", options.model,
                                              trainer.stream_names().size(), options.batch)),
                       options.flags, folder_of(options.run_dir, "linet"));
}

// Steps in the middle of an episode in which nothing is planted: what is built on first use, and the first
// values of a seed, belong to no steady state.
int profile_ppo(const ProfileOptions<train::PpoJobOptions>& options, Context& context) {
  train::PpoJobOptions job = options;
  job.population.epochs = std::max(job.population.epochs, 2 * kWarmUpSteps + options.flags.steps + 1);
  job.max_seeds = 0;
  train::PpoTrainer trainer(job, train::sites_of(job, context.progress()));
  if (trainer.policy() == nullptr)
    fail_usage("--controller {}: only the steps of ppo are profiled", job.controller);
  train::Environments& environments = trainer.environments();
  environments.begin_episode(0);
  trainer.policy()->begin_episode(0);
  train::PopulationTrainer& first = environments.trainer(0);
  Profiled profiled = batches_of(first.step(), first.steps_per_epoch(), text_of(job.population));
  profiled.step_text = "steps: an epoch, validation, a decision";
  profiled.step = [&] { environments.train_epoch(*trainer.policy()); };
  return print_profile(profiled, options.flags, folder_of(job.population.run_dir, "ppo"));
}

}  // namespace

void add_profile_command(CLI::App& app, Context& context) {
  CLI::App& profile = add_group(
      app, "profile", "what the steps of a job do: a trace, kernels by kind, layouts, waits of the host");
  add_job<ProfileOptions<train::HostJobOptions>>(
      profile, context,
      {.name = "host",
       .summary = "of `espalier train host` with the same flags",
       .examples = "  espalier profile host --device cuda --batch 512\n"},
      [](const ProfileOptions<train::HostJobOptions>& options, Context& running) {
        return profile_lanes(one_lane(options), options.flags, "host", running);
      });
  add_job<ProfileOptions<train::PopulationOptions>>(
      profile, context,
      {.name = "population",
       .summary = "of `espalier train population` with the same flags",
       .examples = "  espalier profile population --lanes 128 --batch 64\n"
                   "  espalier profile population --layout --devices cuda\n"},
      [](const ProfileOptions<train::PopulationOptions>& options, Context& running) {
        return profile_lanes(options, options.flags, "population", running);
      });
  add_job<ProfileOptions<train::LinetOptions>>(
      profile, context,
      {.name = "linet",
       .summary = "of `espalier train linet` with the same flags",
       .examples = "  espalier profile linet --model li_resnet50 --batch 64 --device cuda\n"},
      profile_linet);
  add_job<ProfileOptions<train::PpoJobOptions>>(
      profile, context,
      {.name = "ppo",
       .summary = "of `espalier train ppo` with the same flags",
       .examples = "  espalier profile ppo --sync --envs 8 --amp\n"},
      profile_ppo);
}

}  // namespace espalier::cli
