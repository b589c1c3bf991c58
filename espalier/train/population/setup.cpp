#include "espalier/train/population/setup.h"

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/grow/host/registry.h"
#include "espalier/policy/action/space.h"

namespace espalier::train {
namespace {

data::PlanOptions plan_of_lanes(const PopulationConfig& options, const DeviceName& device) {
  return {.kind = options.plan,
          .n_envs = options.lanes,
          .batch_size_per_env = options.batch,
          .env_devices = std::vector<std::string>(static_cast<size_t>(options.lanes), device.text()),
          .seed = options.seed};
}

}  // namespace

at::ScalarType precision_type(Precision precision, at::Device device) {
  if (precision == Precision::kAuto) return device.is_cuda() ? at::kBFloat16 : at::kFloat;
  return precision == Precision::kBf16   ? at::kBFloat16
         : precision == Precision::kFp16 ? at::kHalf
                                         : at::kFloat;
}

std::vector<data::FieldSpec> specs_of(const data::ResidentSplit& split) {
  std::vector<data::FieldSpec> specs;
  for (const data::ResidentField& field : split.fields) specs.push_back(field.spec);
  return specs;
}

size_t chosen_field(const PopulationConfig& options, const std::vector<data::FieldSpec>& fields) {
  std::string names;
  for (size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].name == options.field || (options.field.empty() && fields.size() == 1)) return f;
    names += (names.empty() ? "" : ", ") + fields[f].name;
  }
  if (options.field.empty()) fail_usage("this data has several fields: choose one with --field: {}", names);
  fail_usage("--field '{}': want one of {}", options.field, names);
}

grow::HostFrame frame_for(const PopulationConfig& options, const data::FieldSpec& field,
                          int64_t num_classes) {
  return {.lanes = options.lanes,
          .in_channels = field.channels,
          .height = field.height,
          .width = field.width,
          .num_classes = num_classes,
          .memory_format = options.resident.memory_format,
          .seed = options.seed};
}

std::optional<grow::CnnHostOptions> planned_host(const PopulationConfig& options,
                                                 const grow::HostFrame& frame) {
  const std::optional<grow::CnnHostOptions>& cnn = grow::hosts().at(options.host).cnn;
  return cnn ? std::optional(cnn->in(frame)) : std::nullopt;
}

data::IteratorOptions training_plan(const PopulationConfig& options, const DeviceName& device,
                                    at::ScalarType type) {
  auto training = data::IteratorOptions::training(plan_of_lanes(options, device), type);
  training.augmentation.crop_pad = static_cast<int32_t>(options.crop_pad);
  training.augmentation.flip = options.flip;
  return training;
}

int64_t validation_batch(const PopulationConfig& options, bool on_cuda) {
  if (options.validation_batch > 0) return options.validation_batch;
  if (!on_cuda) return kCpuValidationBatch;
  constexpr int64_t kEnough = 16384;  // images that keep a large GPU busy
  constexpr int64_t kMost = 1024;     // images of one network
  return std::min(kMost, (kEnough + options.lanes - 1) / options.lanes);
}

int64_t scored_batch(const PopulationConfig& options, bool on_cuda, int64_t num_samples) {
  const int64_t most = validation_batch(options, on_cuda);
  const int64_t batches = std::max<int64_t>(1, (num_samples + most - 1) / most);
  return std::max<int64_t>(1, (num_samples + batches - 1) / batches);
}

data::IteratorOptions evaluation_plan(const PopulationConfig& options, const DeviceName& device,
                                      at::ScalarType type, int64_t num_samples) {
  PopulationConfig scored = options;
  scored.batch = scored_batch(options, device.kind == DeviceName::Kind::kCuda, num_samples);
  return data::IteratorOptions::evaluation(plan_of_lanes(scored, device), type);
}

TrainStepOptions step_options(const PopulationConfig& options, int64_t batches_per_pass,
                              const data::ResidentDataset& dataset, ranks::World& world) {
  if (batches_per_pass == 0)
    fail_usage(
        "--batch {}{} is larger than the training split of {} samples: nothing would be trained; lower it, "
        "or "
        "--validation",
        options.batch * world.size(),
        options.plan == data::PlanKind::kSplit ? fmt::format(" for each of {} networks", options.lanes) : "",
        dataset.train.num_samples());
  const lanes::LaneSgdOptions hosts{.learning_rate = options.learning_rate,
                                    .momentum = options.momentum,
                                    .nesterov = options.momentum > 0,
                                    .weight_decay = options.weight_decay};
  lanes::LaneSgdOptions seeds = hosts;
  seeds.rate_factor = options.seed_rate;
  seeds.warm_up_steps = options.seed_warm_up;
  seeds.curve = options.seed_schedule;
  return {.optimizer = hosts,
          .seeds = seeds,
          .schedule = options.schedule,
          .warm_up = options.warm_up,
          .batches_per_epoch = options.batches_per_step > 0 ? options.batches_per_step : batches_per_pass,
          .batches_per_pass = batches_per_pass,
          .num_epochs = options.epochs,
          .label_smoothing = options.label_smoothing,
          .clip_norm = options.clip,
          .compute = precision_type(options.precision, dataset.device),
          .format = dataset.format,
          // Between ranks a step waits for others, which a graph cannot.
          .graphs = {.device = dataset.device,
                     .graphs = options.graphs && world.is_alone() ? Graphs::kOn : Graphs::kOff},
          .world = &world,
          .sync_norm = options.sync_norm};
}

TrainStepOptions evaluation_options(const TrainStep& step) {
  return {.compute = step.options().compute,
          .format = step.options().format,
          .graphs = {.device = step.device(),
                     .graphs = step.graphs().is_capturing() ? Graphs::kOn : Graphs::kOff,
                     .pool = step.graphs().pool()},
          .world = step.options().world};
}

grow::Lifecycle lifecycle_for(const PopulationConfig& options, const grow::NetworkStack& population) {
  grow::LifecycleOptions lifecycle{.lanes = options.lanes,
                                   .num_blueprints = population.blueprints().size(),
                                   .embargo_steps = static_cast<int32_t>(options.embargo),
                                   .gates = options.gates};
  for (const grow::SlotSpec& slot : population.slots()) lifecycle.slots.push_back(slot.name);
  return grow::Lifecycle(std::move(lifecycle));
}

std::unique_ptr<Controller> controller_for(const PopulationConfig& options,
                                           const grow::BlueprintRegistry& blueprints,
                                           const GrowthLimits& limits) {
  ControllerOptions controller{.seed = options.seed, .gates = options.gates, .limits = limits};
  for (int32_t index = 0; index < blueprints.size(); ++index)
    if (index != policy::kNoopBlueprint) controller.blueprints.push_back(index);
  std::ranges::stable_sort(controller.blueprints, {},
                           [&](int32_t index) { return blueprints.at(index).preference; });
  return controllers().at(options.controller).make(controller);
}

}  // namespace espalier::train
