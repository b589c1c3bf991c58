// Trainers for tests: two blocks on 8x8 images, a few dozen samples, and a controller that does what it was
// told.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard_setup.h"
#include "espalier/train/population/trainer.h"
#include "tests/data/small_data.h"
#include "tests/lanes/compare.h"

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

inline PopulationConfig small_options(int64_t lanes) {
  PopulationConfig options;
  options.lanes = lanes;
  options.devices = {parse_device("cpu")};
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

// Slots r0c0, r0c1, r1c0.
inline grow::CnnHostOptions small_host(const PopulationConfig& options) {
  return {.lanes = options.lanes,
          .height = 8,
          .width = 8,
          .num_classes = 10,
          .n_blocks = 2,
          .base_channels = 8,
          .pool_layers = 1,
          .seed = options.seed};
}

struct SmallSetup : ShardSetup {
  std::shared_ptr<Controller> controller;  // none: the one that the options name
};

inline SmallSetup small_setup(const PopulationConfig& options,
                              std::shared_ptr<Controller> controller = nullptr,
                              std::optional<DeviceName> place = {}) {
  const DeviceName device = place ? *place : devices_of(options).front();
  SmallSetup setup;
  setup.options = options;
  setup.dataset = small_data(torch_device(device));
  setup.device = device;
  setup.host = grow::cnn_host(small_host(options));
  setup.shape = small_host(options);
  setup.controller = std::move(controller);
  return setup;
}

// A population of one shard, with its controller.
class OneShard {
 public:
  OneShard(const PopulationConfig& options, const SmallSetup& setup)
      : all_(options, {setup}, setup.dataset->device, setup.on_failure),
        controller_(setup.controller ? setup.controller
                                     : std::shared_ptr(controller_for(options, population().blueprints()))) {}

  EpochRecord train_epoch(const Progress& progress = {}) { return all_.train_epoch(*controller_, progress); }
  std::vector<LaneScore> test() { return all_.test(); }

  void at_every_batch(std::function<void()> call) { all_.at_every_batch(std::move(call)); }

  Shard& shard() { return all_.shard(0); }
  operator Shard&() { return shard(); }
  grow::NetworkStack& population() { return shard().population(); }
  grow::Lifecycle& lifecycle() { return shard().lifecycle(); }
  TrainStep& step() { return shard().step(); }
  Evaluation& validation() { return shard().validation(); }
  const LaneSnapshots& snapshots() { return shard().snapshots(); }
  const ShardSetup& setup() { return shard().setup(); }
  int64_t batches_per_epoch() { return shard().batches_per_epoch(); }
  int64_t epochs_done() { return shard().epochs_done(); }

 private:
  PopulationTrainer all_;
  std::shared_ptr<Controller> controller_;
};

// All that a lane is: parameters, running statistics, seeds, optimiser state.
inline std::map<std::string, at::Tensor> copy_of_lane(Shard& trainer, int64_t lane) {
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
inline void poison(Shard& trainer, int64_t lane) {
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

inline constexpr int32_t kConvSmall = 5, kConvLight = 6, kConvHeavy = 7;

// A seed in slot 1 that is blended in, and after epoch 6 blended otherwise at once.
inline std::shared_ptr<ScriptedController> blended_otherwise(int64_t lane, float target) {
  auto controller = std::make_shared<ScriptedController>();
  controller->script[{lane, 1}] = germinate(1, kConvLight);
  controller->script[{lane, 4}] = {.op = SeedOp::kAdvance, .slot = 1};
  controller->script[{lane, 5}] = {.op = SeedOp::kAdvance, .slot = 1};
  controller->script[{lane, 6}] = {.op = SeedOp::kSetAmplitudeTarget,
                                   .slot = 1,
                                   .blend_operator = BlendOperator::kMultiply,
                                   .target = target};
  return controller;
}

}  // namespace espalier::train::testing
