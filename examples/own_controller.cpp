// A controller of one's own: it plants a convolution in the first slot of every lane, and lets it pass every
// stage as soon as it may.
#include "examples/small_job.h"

using namespace espalier;

class Gardener final : public train::Controller {
 public:
  explicit Gardener(int32_t blueprint) : blueprint_(blueprint) {}

  std::vector<SeedAction> decide(std::span<const train::LaneReport> lanes) override {
    std::vector<SeedAction> actions;
    for (const train::LaneReport& lane : lanes) {
      const SlotState& slot = lane.slots[0].state;
      if (may_choose(slot, SeedOp::kGerminate))
        actions.push_back({.op = SeedOp::kGerminate, .slot = 0, .blueprint = blueprint_, .steps = 1});
      else if (may_choose(slot, SeedOp::kAdvance))
        actions.push_back({.op = SeedOp::kAdvance, .slot = 0});
      else
        actions.push_back({});  // waits
    }
    return actions;
  }

 private:
  int32_t blueprint_;
};

int main() {
  // By its name it is also a choice of --controller, in a program that runs jobs.
  train::controllers().add({.name = "gardener", .make = [](const train::ControllerOptions& options) {
                              return std::make_unique<Gardener>(options.blueprints.front());
                            }});
  train::PopulationConfig options = small_job();
  options.controller = "gardener";
  train::PopulationTrainer population(options);
  const auto controller = train::controller_for(options, population.population(0).blueprints());
  train_all(population, *controller);
  for (int64_t lane = 0; lane < population.num_lanes(); ++lane)
    if (population.population(0).num_parameters(lane) <= population.host_parameters()) return 1;
  return 0;
}
