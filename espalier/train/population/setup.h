// From options to the parts of a trainer.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/data/iterator.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/network_stack.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/population/config.h"
#include "espalier/train/step/step.h"

namespace espalier::train {

// What the option says; auto is resolved by the device.
at::ScalarType precision_type(Precision precision, at::Device device);

std::vector<data::FieldSpec> specs_of(const data::ResidentSplit& split);

// The field that the options choose; refuses where there are several and none is named.
size_t chosen_field(const PopulationConfig& options, const std::vector<data::FieldSpec>& fields);

// What the host of a job with this data is told.
grow::HostFrame frame_for(const PopulationConfig& options, const data::FieldSpec& field, int64_t num_classes);

// The host as the plan of memory knows it; none for a program's own host, whose activations cannot be
// foreseen.
std::optional<grow::CnnHostOptions> planned_host(const PopulationConfig& options,
                                                 const grow::HostFrame& frame);

data::IteratorOptions training_plan(const PopulationConfig& options, const DeviceName& device,
                                    at::ScalarType type);
// Samples of a network that are scored at a time: what the options say, else kCpuValidationBatch, or on a GPU
// what keeps a large one busy. Never a matter of the training's batch: networks that are trained by batches
// of other sizes are scored alike. Sums of scores do not depend on it, bit for bit; logits may, by a
// rounding, where torch or cuDNN compute them.
inline constexpr int64_t kCpuValidationBatch = 64;
int64_t validation_batch(const PopulationConfig& options, bool on_cuda);
// The same for a split of so many samples, shared out evenly: what a last batch lacks is computed all the
// same.
int64_t scored_batch(const PopulationConfig& options, bool on_cuda, int64_t num_samples);
// Samples of one of the parts that validation takes in turn, the last few of the split not counted.
inline int64_t samples_of_part(const PopulationConfig& options, int64_t num_validation) {
  return num_validation / options.validation_parts;
}
// num_samples: those that are scored in one pass.
data::IteratorOptions evaluation_plan(const PopulationConfig& options, const DeviceName& device,
                                      at::ScalarType type, int64_t num_samples);

// Refuses data that no batch can be made of. world: the ranks that share every batch out, of which the
// options have this rank's part.
TrainStepOptions step_options(const PopulationConfig& options, int64_t batches_per_pass,
                              const data::ResidentDataset& dataset, ranks::World& world);
// Its graphs share the memory of the training step's.
TrainStepOptions evaluation_options(const TrainStep& step);

grow::Lifecycle lifecycle_for(const PopulationConfig& options, const grow::NetworkStack& population);

// All blueprints but noop, which nothing is learned from, take part, in the order of their preferences.
std::unique_ptr<Controller> controller_for(const PopulationConfig& options,
                                           const grow::BlueprintRegistry& blueprints = grow::blueprints(),
                                           const GrowthLimits& limits = {});

}  // namespace espalier::train
