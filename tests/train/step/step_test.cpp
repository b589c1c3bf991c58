#include "espalier/train/step/step.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/grow/plain_network.h"
#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::kConvLight;
using testing::small_options;
using testing::small_setup;

// A lane in plain torch: its own modules' values, torch's SGD, the iterator's batches.
class PlainLane {
 public:
  PlainLane(testing::OneShard& trainer, const PopulationConfig& options, int64_t lane)
      : lane_(lane),
        options_(options),
        schedule_(RateSchedule::one_cycle(options.epochs * trainer.batches_per_epoch())),
        network_{.options = dynamic_cast<grow::CnnHost&>(trainer.population().host()).options()} {
    for (const auto& [name, tensor] : copy_of_lane(trainer, lane)) {
      if (name.starts_with("optimizer")) continue;
      network_.values[name] = tensor;
      if (name.find("running") == std::string::npos) trained_.push_back(tensor.set_requires_grad(true));
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(
        trained_,
        torch::optim::SGDOptions(options.learning_rate).momentum(0.9).nesterov(true).weight_decay(5e-4));
  }

  double train_epoch(data::GatherIterator& iterator, int64_t epoch) {
    double loss_sum = 0;
    iterator.begin_epoch(static_cast<uint64_t>(epoch));
    while (const auto batches = iterator.next_stacked()) {
      const at::Tensor logits = network_.forward(batches->front().fields[0][lane_]);
      const at::Tensor loss = at::cross_entropy_loss(logits, batches->front().labels[lane_]);
      optimizer_->zero_grad();
      loss.backward();
      if (options_.clip > 0) torch::nn::utils::clip_grad_norm_(trained_, options_.clip);
      static_cast<torch::optim::SGDOptions&>(optimizer_->param_groups()[0].options())
          .lr(options_.learning_rate * schedule_.at(step_++));
      optimizer_->step();
      loss_sum += loss.item<double>();
    }
    return loss_sum / static_cast<double>(iterator.length());
  }

  const at::Tensor& value(const std::string& name) const { return network_.values.at(name); }

 private:
  int64_t lane_;
  PopulationConfig options_;
  RateSchedule schedule_;
  grow::testing::PlainNetwork network_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::vector<at::Tensor> trained_;
  int64_t step_ = 0;
};

TEST(TrainStep, TrainsEveryLaneAsALoopOverTorchModulesDoes) {
  for (const double clip : {0.0, 0.5}) {
    PopulationConfig options = small_options(3);
    options.epochs = 3;
    options.clip = clip;
    const testing::SmallSetup setup = small_setup(options);
    testing::OneShard trainer(options, setup);
    std::vector<PlainLane> plain;
    for (int64_t lane = 0; lane < 3; ++lane) plain.emplace_back(trainer, options, lane);
    data::GatherIterator iterator(training_plan(options, setup.device, at::kFloat), {setup.dataset},
                                  data::Split::kTrain);
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      const EpochRecord record = trainer.train_epoch();
      for (int64_t lane = 0; lane < 3; ++lane) {
        const double loss = plain[static_cast<size_t>(lane)].train_epoch(iterator, epoch);
        EXPECT_NEAR(record.lanes[static_cast<size_t>(lane)].trained.loss, loss, 1e-4 * loss);
      }
    }
    for (int64_t lane = 0; lane < 3; ++lane)
      for (const auto& each : trainer.population().lane_values(lane)) {
        const at::Tensor& want = plain[static_cast<size_t>(lane)].value(each.name);
        EXPECT_LT((each.tensor - want).abs().max().item<double>(),
                  2e-3 * (1 + want.abs().max().item<double>()))
            << each.name << " of lane " << lane << ", clip " << clip;
      }
  }
}

TEST(TrainStep, MovesItsLearningRateOnTheDeviceAndHalvesThatOfOneLane) {
  PopulationConfig options = small_options(2);
  testing::OneShard trainer(options, small_setup(options));
  TrainStep& step = trainer.step();
  step.set_rate_factor(1, 0.5);
  for (int64_t epoch : {0, 3}) {
    step.begin_epoch(epoch);
    for (int64_t batch = 0; batch < trainer.batches_per_epoch(); ++batch) {
      const double want =
          options.learning_rate * step.schedule().at(epoch * trainer.batches_per_epoch() + batch);
      EXPECT_FLOAT_EQ(step.learning_rates()[0].item<float>(), static_cast<float>(want));
      EXPECT_FLOAT_EQ(step.learning_rates()[1].item<float>(), static_cast<float>(want / 2));
      step.run();
      // What the optimiser used is what was promised.
      EXPECT_FLOAT_EQ(step.optimizers().groups()[0].optimizer->learning_rates[0].item<float>(),
                      static_cast<float>(want));
    }
  }
}

TEST(TrainStep, LeavesOutALaneThatIsNotFiniteAndNoOther) {
  PopulationConfig options = small_options(3);
  testing::OneShard sound(options, small_setup(options)), broken(options, small_setup(options));
  testing::poison(broken, 1);
  const auto before = copy_of_lane(broken, 1);
  for (testing::OneShard* trainer : {&sound, &broken}) {
    trainer->step().begin_epoch(0);
    for (int i = 0; i < 3; ++i) trainer->step().run();
  }
  for (const int64_t lane : {0, 2})
    expect_same_lane(copy_of_lane(sound, lane), copy_of_lane(broken, lane), "lane " + std::to_string(lane));
  for (const auto& [name, tensor] : copy_of_lane(broken, 1)) {
    if (name.find("running") == std::string::npos)
      lanes::testing::expect_same_bits(tensor, before.at(name), name);
  }
  const auto metrics = broken.step().metrics();
  EXPECT_EQ(metrics[0].non_finite, 0);
  EXPECT_EQ(metrics[1].non_finite, 3);
  EXPECT_EQ(metrics[2].non_finite, 0);
}

TEST(TrainStep, ClipsTheHostByItsOwnNormWhateverSeedsTrain) {
  PopulationConfig options = small_options(2);
  options.clip = 0.05;
  testing::OneShard bare(options, small_setup(options)), grown(options, small_setup(options));
  grown.lifecycle().germinate(0, 1, {.blueprint = kConvLight});
  grown.lifecycle().begin_epoch();
  grown.step().sync_groups(grown.population().apply(grown.lifecycle().states()));
  for (testing::OneShard* trainer : {&bare, &grown}) {
    trainer->step().begin_epoch(0);
    for (int i = 0; i < 4; ++i) trainer->step().run();
  }
  const auto with_seed = copy_of_lane(grown, 0);
  for (const auto& [name, tensor] : copy_of_lane(bare, 0))
    lanes::testing::expect_same_bits(tensor, with_seed.at(name), name);
  EXPECT_GT(grown.step().metrics()[0].slots[1], 0);
  EXPECT_EQ(grown.step().metrics()[1].slots[1], 0);
}

TEST(TrainStep, ListsEverythingThatAStepChanges) {
  PopulationConfig options = small_options(2);
  testing::OneShard trainer(options, small_setup(options));
  trainer.lifecycle().germinate(1, 0, {.blueprint = kConvLight, .blend_operator = BlendOperator::kGate});
  trainer.lifecycle().begin_epoch();
  TrainStep& step = trainer.step();
  step.sync_groups(trainer.population().apply(trainer.lifecycle().states()));
  step.begin_epoch(0);
  const auto lanes_now = [&] { return std::pair(copy_of_lane(trainer, 0), copy_of_lane(trainer, 1)); };
  std::vector<at::Tensor> saved;
  for (const at::Tensor& tensor : step.state()) saved.push_back(tensor.detach().clone());
  step.run();
  const auto once = lanes_now();
  // Put back as before a capture, a second first step gives what the first gave.
  for (size_t i = 0; i < saved.size(); ++i) step.state()[i].detach().copy_(saved[i]);
  step.run();
  const auto again = lanes_now();
  expect_same_lane(once.first, again.first, "lane 0");
  expect_same_lane(once.second, again.second, "lane 1");
}

TEST(TrainStep, MeasuresItselfWithoutTraining) {
  PopulationConfig options = small_options(2);
  testing::OneShard plain(options, small_setup(options)), measured(options, small_setup(options));
  for (testing::OneShard* trainer : {&plain, &measured}) trainer->train_epoch();
  std::vector<at::Tensor> before;
  for (const at::Tensor& tensor : measured.step().state()) before.push_back(tensor.detach().clone());
  EXPECT_GT(measured.step().measure_ms(), 0);
  for (size_t i = 0; i < before.size(); ++i)
    lanes::testing::expect_same_bits(measured.step().state()[i].detach(), before[i],
                                     "state " + std::to_string(i));
  for (testing::OneShard* trainer : {&plain, &measured}) trainer->train_epoch();
  for (const int64_t lane : {0, 1})
    expect_same_lane(copy_of_lane(plain, lane), copy_of_lane(measured, lane), "lane");
}

TEST(TrainStep, LowersTheLossScaleOfALaneWhoseHalfPrecisionOverflows) {
  PopulationConfig options = small_options(2);
  options.precision = Precision::kFp16;
  testing::OneShard trainer(options, small_setup(options));
  // Logits of lane 1 far apart: its scaled gradients do not fit into fp16.
  for (const auto& each : trainer.population().lane_values(1))
    if (each.name == "host.classifier.weight") each.tensor.mul_(1e4);
  trainer.population().refresh();
  const auto before = copy_of_lane(trainer, 1);
  trainer.step().begin_epoch(0);
  trainer.step().run();
  const auto after = copy_of_lane(trainer, 1);
  auto metrics = trainer.step().metrics();
  EXPECT_EQ(metrics[1].skipped, 1);
  EXPECT_EQ(metrics[1].non_finite, 0);
  EXPECT_EQ(metrics[0].skipped, 0);
  lanes::testing::expect_same_bits(before.at("host.block0.conv.weight"), after.at("host.block0.conv.weight"),
                                   "weight");
  trainer.step().run();
  metrics = trainer.step().metrics();
  EXPECT_EQ(metrics[1].loss_scale, LossScale::kFirst / 2);
  EXPECT_EQ(metrics[0].loss_scale, LossScale::kFirst);
}

}  // namespace
}  // namespace espalier::train
