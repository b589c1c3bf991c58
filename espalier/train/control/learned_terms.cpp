#include "espalier/train/control/learned_terms.h"

namespace espalier::train {

PolicyTerms terms_of(const EnvironmentConfig& options, const grow::NetworkStack& population) {
  const PopulationConfig& networks = options.population;
  const std::vector<bool> enabled = growth_limits(options, space_of(population)).enabled_slots;
  std::vector<std::string> slots, planted;
  for (size_t slot = 0; slot < population.slots().size(); ++slot) {
    slots.push_back(population.slots()[slot].name);
    if (enabled[slot]) planted.push_back(slots.back());
  }
  const grow::GateOptions& gates = networks.gates;
  PolicyTerms terms{.blueprints = population.blueprints().names(),
                    .host_slots = std::move(slots),
                    .planted_slots = std::move(planted),
                    .max_seeds = options.max_seeds,
                    .parameter_budget = options.parameter_budget,
                    .gates = "permissive",
                    .gate_training_steps = gates.min_training_steps,
                    .gate_least_norm = gates.min_gradient_norm,
                    .gate_largest_norm = gates.max_gradient_norm,
                    .embargo = networks.embargo,
                    .episode_length = networks.epochs,
                    .batches_per_step = networks.batches_per_step,
                    .validate_every = networks.validate_every,
                    .validation_parts = networks.validation_parts,
                    .telemetry_every = networks.telemetry_every};
  if (gates.mode == grow::GateMode::kStrict) {
    terms.gates = "strict";
    terms.gate_improvement = gates.min_improvement_points;
    terms.gate_gradient_ratio = gates.min_gradient_ratio;
    terms.gate_contribution = gates.min_contribution_points;
  }
  return terms;
}

}  // namespace espalier::train
