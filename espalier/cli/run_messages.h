// What a run tells besides its results, for people: warnings, checkpoints, where it goes on.
#pragma once

#include "espalier/cli/command.h"
#include "espalier/train/run.h"

namespace espalier::cli {

// Warnings go to standard error, the rest to standard output.
train::RunEvents run_events(const Context& context);

}  // namespace espalier::cli
