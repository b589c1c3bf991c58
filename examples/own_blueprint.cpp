// A kind of seed of one's own: a 1x1 convolution beside the way through, which begins as nothing.
#include "espalier/grow.h"
#include "espalier/lanes.h"
#include "examples/small_job.h"

using namespace espalier;

class Mixer final : public grow::SeedModule {
 public:
  explicit Mixer(const grow::SeedBuild& build)
      : conv_({.lanes = build.entries,
               .in_channels = build.shape.channels,
               .out_channels = build.shape.channels,
               .kernel_size = 1},
              build.options, build.compute) {}

  at::Tensor forward(const at::Tensor& x, lanes::Mode /*mode*/) override {  // [E,B,C,H,W]
    const auto [through, branch] = grow::lane_fork(x);
    return grow::lane_residual(through, conv_.forward(branch));
  }
  std::vector<lanes::NamedParameter> parameters() override { return conv_.parameters(); }
  void initialise(const grow::SeedInit& init) override { init.fill({"weight", &conv_.weight}, 0); }

 private:
  lanes::LaneConv2d conv_;
};

int main() {
  train::PopulationParts parts;
  const int32_t mixer = parts.blueprints.add(
      {.name = "mixer",
       .num_parameters = [](const grow::SeedShape& shape) { return shape.channels * shape.channels; },
       .make = [](const grow::SeedBuild& build) { return std::make_unique<Mixer>(build); }});
  train::PopulationConfig options = small_job();
  options.epochs = 10;
  train::PopulationTrainer population(options, parts);
  // Draws what to do, and has this kind alone to plant.
  const auto controller = train::controllers().at("random").make({.seed = 1, .blueprints = {mixer}});
  train_all(population, *controller);
  return 0;
}
