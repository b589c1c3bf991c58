#include "espalier/train/population_setup.h"

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier::train {
namespace {

data::PlanOptions plan_of_lanes(const PopulationOptions& options, const DeviceName& device) {
  return {.kind = options.plan == "split" ? data::PlanKind::kSplit : data::PlanKind::kOwn,
          .n_envs = options.lanes,
          .batch_size_per_env = options.batch,
          .env_devices = std::vector<std::string>(static_cast<size_t>(options.lanes), device.text()),
          .seed = options.seed};
}

grow::GateOptions gates_of(const PopulationOptions& options) {
  return {.mode = options.gates == "strict" ? grow::GateMode::kStrict : grow::GateMode::kPermissive};
}

}  // namespace

at::ScalarType precision_type(const std::string& precision, at::Device device) {
  if (precision == "bf16" || (precision == "auto" && device.is_cuda())) return at::kBFloat16;
  return precision == "fp16" ? at::kHalf : at::kFloat;
}

std::vector<data::FieldSpec> specs_of(const data::ResidentSplit& split) {
  std::vector<data::FieldSpec> specs;
  for (const data::ResidentField& field : split.fields) specs.push_back(field.spec);
  return specs;
}

size_t chosen_field(const TrainingOptions& options, const std::vector<data::FieldSpec>& fields) {
  std::string names;
  for (size_t f = 0; f < fields.size(); ++f) {
    if (fields[f].name == options.field || (options.field.empty() && fields.size() == 1)) return f;
    names += (names.empty() ? "" : ", ") + fields[f].name;
  }
  if (options.field.empty()) fail_usage("this data has several fields: choose one with --field: {}", names);
  fail_usage("--field '{}': want one of {}", options.field, names);
}

grow::CnnHostOptions host_for(const PopulationOptions& options, const data::FieldSpec& field,
                              int64_t num_classes) {
  grow::CnnHostOptions host = grow::host_preset(options.host);
  host.lanes = options.lanes;
  host.in_channels = field.channels;
  host.height = field.height;
  host.width = field.width;
  host.num_classes = num_classes;
  host.memory_format = options.resident.format();
  host.seed = options.seed;
  return host;
}

data::IteratorOptions training_plan(const PopulationOptions& options, const DeviceName& device,
                                    at::ScalarType type) {
  auto training = data::IteratorOptions::training(plan_of_lanes(options, device), type);
  training.augmentation.crop_pad = static_cast<int32_t>(options.crop_pad);
  training.augmentation.flip = options.flip;
  return training;
}

data::IteratorOptions evaluation_plan(const PopulationOptions& options, const DeviceName& device,
                                      at::ScalarType type) {
  return data::IteratorOptions::evaluation(plan_of_lanes(options, device), type);
}

TrainStepOptions step_options(const PopulationOptions& options, int64_t steps_per_epoch,
                              at::ScalarType compute, const data::ResidentDataset& dataset) {
  if (steps_per_epoch == 0)
    fail_usage(
        "{} {}{} is larger than the training split of {} samples: nothing would be trained; lower it, or "
        "--validation",
        options.batch_flag, options.batch,
        options.plan == "split" ? fmt::format(" for each of {} networks", options.lanes) : "",
        dataset.train.num_samples());
  return {.optimizer = {.learning_rate = options.learning_rate,
                        .momentum = options.momentum,
                        .nesterov = options.momentum > 0,
                        .weight_decay = options.weight_decay},
          .steps_per_epoch = steps_per_epoch,
          .num_epochs = options.epochs,
          .label_smoothing = options.label_smoothing,
          .clip_norm = options.clip,
          .compute = compute,
          .format = dataset.format,
          .graphs = {.device = dataset.device, .graphs = options.graphs ? Graphs::kOn : Graphs::kOff}};
}

TrainStepOptions evaluation_options(const TrainStep& step, at::ScalarType compute,
                                    const data::ResidentDataset& dataset) {
  return {.compute = compute,
          .format = dataset.format,
          .graphs = {.device = dataset.device,
                     .graphs = step.graphs().is_capturing() ? Graphs::kOn : Graphs::kOff,
                     .pool = step.graphs().pool()}};
}

grow::Lifecycle lifecycle_for(const PopulationOptions& options, const grow::Population& population) {
  grow::LifecycleOptions lifecycle{.lanes = options.lanes,
                                   .num_blueprints = population.blueprints().size(),
                                   .embargo_steps = static_cast<int32_t>(options.embargo),
                                   .gates = gates_of(options)};
  for (const grow::SlotSpec& slot : population.slots()) lifecycle.slots.push_back(slot.name);
  return grow::Lifecycle(std::move(lifecycle));
}

std::unique_ptr<Controller> controller_for(const PopulationOptions& options,
                                           const grow::BlueprintRegistry& blueprints,
                                           const GrowthLimits& limits) {
  ControllerOptions controller{.seed = options.seed, .gates = gates_of(options), .limits = limits};
  // From what changes most for its price on; a user's own follow in the order they were added.
  for (const char* name :
       {"conv_light", "attention", "depthwise", "bottleneck", "norm", "conv_small", "conv_heavy"})
    controller.blueprints.push_back(blueprints.index_of(name));
  const int32_t noop = blueprints.index_of("noop");
  for (int32_t index = 0; index < blueprints.size(); ++index)
    if (index != noop && std::ranges::find(controller.blueprints, index) == controller.blueprints.end())
      controller.blueprints.push_back(index);
  return make_controller(options.controller, controller);
}

}  // namespace espalier::train
