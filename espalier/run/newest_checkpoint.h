// The checkpoint that a run goes on from where none is named.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "espalier/run/files/checkpoint_folder.h"

namespace espalier::run {

// The newest that is whole; warn: is told of each damaged one on the way. None where there are none; fails
// where all are damaged.
std::shared_ptr<const Checkpoint> newest_checkpoint(const CheckpointFolder& folder,
                                                    const std::function<void(const std::string&)>& warn);

}  // namespace espalier::run
