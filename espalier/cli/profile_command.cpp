// espalier profile: what a training step does, op by op, and where the host waits for the device
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "espalier/cli/commands.h"
#include "espalier/data/cache.h"
#include "espalier/train/population_options.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/population_trainer.h"
#include "espalier/train/ppo_job.h"
#include "espalier/watch/audit/layout_audit.h"
#include "espalier/watch/audit/sync_audit.h"

namespace espalier::cli {
namespace {

struct ProfileOptions {
  bool layout = true;
  bool sync = false;
  int64_t steps = 3;
  train::PopulationOptions training;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "layout", .help = "which ops ran on which layouts, and every conversion between them"},
      layout);
    v({.name = "sync",
       .help =
           "instead: every place where the host waits for the device in steps of train ppo, an epoch each"},
      sync);
    v({.name = "steps", .help = "training steps to look at, after some that warm up", .low = 1, .high = 1000},
      steps);
    training.visit(v);
  }
};

constexpr int kWarmUpSteps = 3;

// Steps in the middle of an episode in which nothing is planted: what is built on first use, and the first
// values of a seed, belong to no steady state.
int profile_sync(const ProfileOptions& options, Context& context) {
  constexpr int64_t kLeastLength = 16;
  train::PpoJobOptions job;
  job.population = options.training;
  job.population.epochs = std::max(kLeastLength, 2 * kWarmUpSteps + options.steps + 1);
  job.devices = options.training.device;
  job.amp = options.training.precision != "fp32";
  job.amp_dtype = options.training.precision == "fp16" ? "float16" : "bfloat16";
  job.max_seeds = 0;
  train::PpoTrainer trainer(job, train::setup_of(job, context.progress()));
  train::Environments& environments = trainer.environments();
  environments.begin_episode(0);
  trainer.policy()->begin_episode(0);
  for (int i = 0; i < 2 * kWarmUpSteps; ++i) environments.train_epoch(*trainer.policy());
  const watch::SyncReport report =
      watch::audit_sync(trainer.policy()->options().device, static_cast<int>(options.steps),
                        [&] { environments.train_epoch(*trainer.policy()); });
  fmt::print("{} lanes of {}, batch {}, on {}: {} steps of train ppo\n{}\nhost waits a step: {:.3g}\n",
             options.training.lanes, options.training.host, options.training.batch, report.device,
             report.steps, report.text(),
             static_cast<double>(report.num_waits()) / static_cast<double>(report.steps));
  return 0;
}

int profile(const ProfileOptions& options, Context& context) {
  if (options.sync) return profile_sync(options, context);
  const train::PopulationOptions& training = options.training;
  const DeviceName name = data::choose_device(training.device);
  const auto dataset =
      data::DatasetCache::instance().ensure(training.source, training.resident, name, context.progress());
  const std::vector<data::FieldSpec> specs = train::specs_of(dataset->train);
  const data::FieldSpec& field = specs[train::chosen_field(training, specs)];
  train::PopulationTrainer trainer(
      training,
      {.dataset = dataset, .device = name, .host = train::host_for(training, field, dataset->num_classes())});
  train::TrainStep& step = trainer.step();
  step.begin_epoch(0);
  for (int i = 0; i < kWarmUpSteps; ++i) step.run_eagerly();

  // Eagerly every op is seen; replayed, the kernels that run in truth.
  const auto steps = static_cast<int>(options.steps);
  const watch::LayoutReport eager = watch::audit_layout(dataset->device, steps, [&] { step.run_eagerly(); });
  fmt::print("{} lanes of {}, batch {}, on {}: {} steps, op by op\n{}", training.lanes, training.host,
             training.batch, dataset->device.str(), steps, eager.text());
  int64_t conversions = eager.num_conversions();
  if (step.graphs().is_capturing()) {
    for (int i = 0; i < kWarmUpSteps; ++i) step.run();  // captures
    const watch::LayoutReport replayed = watch::audit_layout(dataset->device, steps, [&] { step.run(); });
    fmt::print("\n{} steps, replayed as captured\n{}", steps, replayed.text());
    conversions += replayed.num_conversions();
  }
  fmt::print("\nconversions between layouts: {}\n", conversions);
  return 0;
}

}  // namespace

void add_profile_command(CLI::App& app, Context& context) {
  add_job<ProfileOptions>(app, context,
                          {.name = "profile",
                           .summary = "what a training step does, op by op, and on which layouts",
                           .examples = "  espalier profile --layout\n"
                                       "  espalier profile --sync --plan split --device cuda\n"
                                       "  espalier profile --layout --lanes 128 --batch 64 --device cuda\n"},
                          profile);
}

}  // namespace espalier::cli
