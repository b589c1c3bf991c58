// A kind of seed of one's own: a 1x1 convolution beside the way through, which begins as nothing.
#include "espalier/grow.h"
#include "espalier/lanes.h"
#include "examples/small_job.h"

using namespace espalier;

struct Mixer final : grow::SeedModule {
  explicit Mixer(const grow::SeedBuild& build)
      : conv({build.entries, build.shape.channels, build.shape.channels, /*kernel_size=*/1}, build.options,
             build.compute) {}

  at::Tensor forward(const at::Tensor& x, lanes::Mode /*mode*/) override {  // [E,B,C,H,W]
    const auto [through, branch] = grow::lane_fork(x);
    return grow::lane_residual(through, conv.forward(branch));
  }
  std::vector<lanes::NamedParameter> parameters() override { return conv.parameters(); }
  void initialise(const grow::SeedInit& init) override { init.fill({"weight", &conv.weight}, 0); }

  lanes::LaneConv2d conv;
};

int main() {
  // From here on every job of this program has it too, under its name.
  const int32_t mixer = grow::blueprints().add(
      {.name = "mixer",
       .num_parameters = [](const grow::SeedShape& shape) { return shape.channels * shape.channels; },
       .make = [](const grow::SeedBuild& build) { return std::make_unique<Mixer>(build); }});
  train::PopulationConfig options = small_job();
  options.epochs = 10;
  train::PopulationTrainer population(options);
  // Draws what to do, and has this kind alone to plant.
  train_all(population, *train::controllers().at("random").make({.seed = 1, .blueprints = {mixer}}));
}
