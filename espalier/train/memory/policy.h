// What a policy will take on its device, from shapes alone. See plan.h.
#pragma once

#include "espalier/train/control/policy_controller.h"
#include "espalier/train/memory/plan.h"

namespace espalier::train {

enum class PolicyUse { kLearns, kActs };

// Without CUDA's own part and the budget.
MemoryPlan policy_parts(const PolicyOptions& options, PolicyUse use);

}  // namespace espalier::train
