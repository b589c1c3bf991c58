// Trainers for tests: two blocks on 8x8 images, a few dozen samples, and a controller that does what it was
// told.
#pragma once

#include <torch/torch.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "espalier/train/population_setup.h"
#include "espalier/train/population_trainer.h"
#include "espalier/train/site.h"
#include "tests/data/small_data.h"
#include "tests/lanes/lane_compare.h"

namespace espalier::train::testing {

// Networks this small are faster on one thread than on many, above all where other programs run besides.
inline const int kOneThread = (at::set_num_threads(1), 1);

// By (lane, epoch); waits where nothing was written.
class ScriptedController final : public Controller {
 public:
  std::map<std::pair<int64_t, int64_t>, SeedAction> script;
  std::vector<LaneReport> seen;

  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override {
    std::vector<SeedAction> actions;
    for (const LaneReport& lane : lanes) {
      seen.push_back(lane);
      const auto found = script.find({lane.lane, lane.epoch});
      actions.push_back(found == script.end() ? SeedAction{} : found->second);
    }
    return actions;
  }
};

inline PopulationOptions small_options(int64_t lanes) {
  PopulationOptions options;
  options.lanes = lanes;
  options.devices = "cpu";
  options.batch = 10;
  options.epochs = 8;
  options.learning_rate = 0.1;
  options.crop_pad = 1;
  options.seed = 5;
  return options;
}

inline std::shared_ptr<const data::ResidentDataset> small_data(c10::Device device = c10::kCPU) {
  const auto images = data::testing::small_dataset({data::testing::image_spec(8, 8)}, 60, 20);
  return data::testing::resident(images, {.validation = 20}, device);
}

inline TrainerSetup small_setup(const PopulationOptions& options,
                                std::shared_ptr<Controller> controller = nullptr,
                                std::optional<DeviceName> site = {}) {
  const DeviceName device = site ? *site : devices_of(options).front();
  const auto dataset = small_data(data::torch_device(device));
  return {.dataset = dataset,
          .device = device,
          .host = {.lanes = options.lanes,
                   .height = 8,
                   .width = 8,
                   .num_classes = 10,
                   .n_blocks = 2,
                   .base_channels = 8,
                   .pool_layers = 1,
                   .seed = options.seed},  // slots r0c0, r0c1, r1c0
          .controller = std::move(controller)};
}

// All that a lane is: parameters, running statistics, seeds, optimiser state.
inline std::map<std::string, at::Tensor> copy_of_lane(PopulationTrainer& trainer, int64_t lane) {
  std::map<std::string, at::Tensor> copy;
  for (const auto& each : trainer.population().lane_values(lane))
    copy[each.name] = each.tensor.detach().clone();
  for (const auto& each : trainer.step().optimizers().lane_state(lane))
    copy[each.name] = each.tensor.detach().clone();
  return copy;
}

inline void expect_same_lane(const std::map<std::string, at::Tensor>& a,
                             const std::map<std::string, at::Tensor>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (const auto& [name, tensor] : a) {
    ASSERT_TRUE(b.contains(name)) << what << ": " << name;
    lanes::testing::expect_same_bits(tensor, b.at(name), what + ": " + name);
  }
}

// What a division by zero would leave behind: every loss of the lane is NaN from now on.
inline void poison(PopulationTrainer& trainer, int64_t lane) {
  trainer.population().lane_values(lane).front().tensor.fill_(std::numeric_limits<float>::quiet_NaN());
  trainer.population().refresh();
}

inline SeedAction germinate(int32_t slot, int32_t blueprint, int32_t steps = 1,
                            BlendOperator blend_operator = BlendOperator::kAdd) {
  return {.op = SeedOp::kGerminate,
          .slot = slot,
          .blueprint = blueprint,
          .blend_operator = blend_operator,
          .steps = steps};
}

inline constexpr int32_t kConvSmall = 5, kConvLight = 6;

}  // namespace espalier::train::testing
