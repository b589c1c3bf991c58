// The terms that a policy of these environments learns on: written into its file, and compared where it acts.
#pragma once

#include "espalier/grow/network_stack.h"
#include "espalier/train/control/policy_terms.h"
#include "espalier/train/control/ppo_config.h"

namespace espalier::train {

PolicyTerms terms_of(const EnvironmentConfig& options, const grow::NetworkStack& population);

}  // namespace espalier::train
