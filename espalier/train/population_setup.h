// From options to the parts of a trainer.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "espalier/core/device_name.h"
#include "espalier/data/iterator.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/population.h"
#include "espalier/train/controller.h"
#include "espalier/train/population_options.h"
#include "espalier/train/train_step.h"

namespace espalier::train {

// What the option says; auto is resolved by the device.
at::ScalarType precision_type(const std::string& precision, at::Device device);

std::vector<data::FieldSpec> specs_of(const data::ResidentSplit& split);

// The field that the options choose; refuses where there are several and none is named.
size_t chosen_field(const TrainingOptions& options, const std::vector<data::FieldSpec>& fields);

// What every lane of a job with this data begins as.
grow::CnnHostOptions host_for(const PopulationOptions& options, const data::FieldSpec& field,
                              int64_t num_classes);

data::IteratorOptions training_plan(const PopulationOptions& options, const DeviceName& device,
                                    at::ScalarType type);
data::IteratorOptions evaluation_plan(const PopulationOptions& options, const DeviceName& device,
                                      at::ScalarType type);

// Refuses an epoch without a step.
TrainStepOptions step_options(const PopulationOptions& options, int64_t steps_per_epoch,
                              at::ScalarType compute, const data::ResidentDataset& dataset);
// Its graphs share the memory of the training step's.
TrainStepOptions evaluation_options(const TrainStep& step, at::ScalarType compute,
                                    const data::ResidentDataset& dataset);

grow::Lifecycle lifecycle_for(const PopulationOptions& options, const grow::Population& population);

// All blueprints but noop, which nothing is learned from, take part.
std::unique_ptr<Controller> controller_for(const PopulationOptions& options,
                                           const grow::BlueprintRegistry& blueprints,
                                           const GrowthLimits& limits = {});

}  // namespace espalier::train
