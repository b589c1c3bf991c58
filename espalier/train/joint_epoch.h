// One epoch of all populations of a job under one controller: everything is queued, the controller acts on
// the device where it can, then one copy brings the epoch to the host, and the rest is arithmetic there.
#pragma once

#include <span>

#include "espalier/core/progress.h"
#include "espalier/train/controller.h"
#include "espalier/train/epoch_buffer.h"
#include "espalier/train/epoch_record.h"
#include "espalier/train/step_timing.h"

namespace espalier::train {

class PopulationTrainer;

// buffer: of these populations, in this order. Lanes are recorded in the order of the job's environments.
// acting: of the device where the controller acts, or none.
EpochRecord train_together(std::span<PopulationTrainer* const> populations, EpochBuffer& buffer,
                           Controller& controller, const Progress& progress, StepTiming* acting = nullptr);

}  // namespace espalier::train
