// A controller of one's own: it plants a convolution in the first slot of every lane, and lets it pass every
// stage as soon as it may. By a name in train::controllers() it would be a choice of --controller too.
#include "examples/small_job.h"

using namespace espalier;

struct Gardener final : train::Controller {
  const int32_t blueprint = grow::blueprints().index_of("conv_light");

  std::vector<SeedAction> decide(std::span<const train::LaneReport> lanes) override {
    std::vector<SeedAction> actions;
    for (const train::LaneReport& lane : lanes) {
      const SlotState& slot = lane.slots[0].state;
      if (may_choose(slot, SeedOp::kGerminate))
        actions.push_back({.op = SeedOp::kGerminate, .slot = 0, .blueprint = blueprint, .steps = 1});
      else if (may_choose(slot, SeedOp::kAdvance))
        actions.push_back({.op = SeedOp::kAdvance, .slot = 0});
      else
        actions.push_back({});  // waits
    }
    return actions;
  }
};

int main() {
  Gardener controller;
  const train::PopulationConfig options = small_job();
  train::PopulationTrainer population(options);
  train_all(population, controller);
  for (int64_t lane = 0; lane < population.num_lanes(); ++lane)
    if (population.population(0).num_parameters(lane) <= population.host_parameters()) return 1;
}
