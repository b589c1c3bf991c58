// From the sums of an epoch to what the policy observes: on the device, in place, for all lanes at once.
//
// Kept true: the numbers are those of the host's reports (population_trainer.cpp), rounded to f32; nothing is
// read on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include "espalier/policy/observation.h"
#include "espalier/train/controller.h"

namespace espalier::train {

// parameter_budget: what may be added, as a share of the host's parameters.
void fill_signs(const EpochSigns& epoch, double parameter_budget, const policy::LaneSigns& signs);

// [L] bool: lanes whose loss or gradients were not finite in the epoch.
at::Tensor lost_in(const EpochSigns& epoch);

}  // namespace espalier::train
