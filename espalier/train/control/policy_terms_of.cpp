#include "espalier/train/control/policy_terms_of.h"

namespace espalier::train {

PolicyTerms terms_of(const EnvironmentConfig& options, const grow::Population& population) {
  const PopulationConfig& networks = options.population;
  const std::vector<bool> enabled = growth_limits(options, space_of(population)).enabled_slots;
  std::vector<std::string> slots, planted;
  for (size_t slot = 0; slot < population.slots().size(); ++slot) {
    slots.push_back(population.slots()[slot].name);
    if (enabled[slot]) planted.push_back(slots.back());
  }
  return {.blueprints = population.blueprints().names(),
          .host_slots = std::move(slots),
          .planted_slots = std::move(planted),
          .max_seeds = options.max_seeds,
          .parameter_budget = options.parameter_budget,
          .gates = networks.gates.mode == grow::GateMode::kStrict ? "strict" : "permissive",
          .embargo = networks.embargo,
          .episode_length = networks.epochs,
          .batches_per_step = networks.batches_per_step,
          .validate_every = networks.validate_every};
}

}  // namespace espalier::train
