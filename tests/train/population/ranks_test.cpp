// A population whose every batch several ranks share out: all of them have the same lanes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/lanes/head/pool.h"
#include "espalier/train/step/data_parallel.h"
#include "tests/grow/plain_network.h"
#include "tests/support/message.h"
#include "tests/support/thread_ranks.h"
#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using espalier::testing::as_ranks;
using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::OneShard;
using testing::small_options;
using testing::small_setup;
using Tensors = std::map<std::string, at::Tensor>;

// Three batches in an epoch, for 1 to 4 ranks; some samples fill none.
PopulationConfig shared_options() {
  PopulationConfig options = small_options(1);
  options.batch = 12;
  return options;
}

// The setup of one rank. options: of all of them.
testing::SmallSetup setup_of(const PopulationConfig& options, ranks::World& world) {
  PopulationConfig own = options;
  own.batch = part_of_batch(options.batch, world);
  testing::SmallSetup setup = small_setup(own);
  setup.batch_world = &world;
  return setup;
}

Tensors gradients_of(Shard& shard) {
  Tensors gradients;
  for (const lanes::NamedParameter& named : shard.population().host().parameters())
    gradients[named.name] = named.parameter->gradient().clone();
  return gradients;
}

Tensors statistics_of(Shard& shard) {
  Tensors statistics;
  for (const grow::Host::Buffer& buffer : shard.population().host().buffers())
    statistics[buffer.name] = buffer.tensor.clone();
  return statistics;
}

// But for roundings: a sum of n values in fp32 is off by some sqrt(n) 2^-24 of their size. What is all
// rounding (a gradient that is 0 in truth) is small beside the largest.
void expect_rounded(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const auto& [name, tensor] : expected) largest = std::max(largest, tensor.abs().max().item<double>());
  for (const auto& [name, tensor] : expected) {
    const double size = std::max(tensor.abs().max().item<double>(), 1e-3 * largest);
    EXPECT_LE((actual.at(name) - tensor).abs().max().item<double>(), std::ldexp(size, -17)) << name;
  }
}

TEST(PopulationRanks, TakeTheGradientsOfOneProcessWithSyncedNorms) {
  PopulationConfig options = shared_options();
  OneShard alone(options, small_setup(options));
  alone.step().begin_epoch(0);
  alone.step().run();
  const LaneMetrics whole = alone.step().metrics()[0];
  options.sync_norm = true;
  for (const int size : {2, 3, 4})
    as_ranks(size, [&](ranks::World& world) {
      OneShard shared(options, setup_of(options, world));
      EXPECT_EQ(shared.batches_per_epoch(), 3);
      shared.step().begin_epoch(0);
      shared.step().run();
      expect_rounded(gradients_of(shared), gradients_of(alone));
      expect_rounded(statistics_of(shared), statistics_of(alone));
      const LaneMetrics metrics = shared.step().metrics()[0];
      EXPECT_NEAR(metrics.loss, whole.loss, 1e-6 * whole.loss);
      EXPECT_EQ(metrics.accuracy, whole.accuracy);
      EXPECT_NEAR(metrics.gradient_norm, whole.gradient_norm, 1e-5 * whole.gradient_norm);
    });
}

// Data parallel training in plain torch: every part has its own statistics, gradients and moved running
// statistics are means over the parts.
class PlainRanks {
 public:
  PlainRanks(OneShard& like, const PopulationConfig& options, int64_t ranks)
      : options_(options),
        ranks_(ranks),
        schedule_(RateSchedule::one_cycle(options.epochs * like.batches_per_epoch())),
        network_{.options = dynamic_cast<grow::CnnHost&>(like.population().host()).options()} {
    for (const auto& [name, tensor] : copy_of_lane(like, 0)) {
      if (name.starts_with("optimizer")) continue;
      network_.values[name] = tensor;
      if (name.find("running") == std::string::npos)
        trained_.push_back(tensor.set_requires_grad(true));
      else
        statistics_.push_back(tensor);
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(trained_, torch::optim::SGDOptions(options.learning_rate)
                                                                   .momentum(options.momentum)
                                                                   .nesterov(true)
                                                                   .weight_decay(options.weight_decay));
  }

  // images [B,C,H,W], labels [B] of the whole batch. Returns the mean loss.
  double train(const at::Tensor& images, const at::Tensor& labels) {
    std::vector<at::Tensor> before, mean;
    for (const at::Tensor& each : statistics_) {
      before.push_back(each.clone());
      mean.push_back(at::zeros_like(each));
    }
    optimizer_->zero_grad();
    double loss_sum = 0;
    const int64_t part = images.size(0) / ranks_;
    for (int64_t rank = 0; rank < ranks_; ++rank) {
      for (size_t i = 0; i < before.size(); ++i) statistics_[i].copy_(before[i]);
      const at::Tensor logits = network_.forward(images.narrow(0, rank * part, part));
      const at::Tensor loss = at::cross_entropy_loss(logits, labels.narrow(0, rank * part, part));
      (loss / static_cast<double>(ranks_)).backward();
      loss_sum += loss.item<double>() / static_cast<double>(ranks_);
      for (size_t i = 0; i < mean.size(); ++i) mean[i] += statistics_[i] / static_cast<double>(ranks_);
    }
    for (size_t i = 0; i < mean.size(); ++i) statistics_[i].copy_(mean[i]);
    if (options_.clip > 0) torch::nn::utils::clip_grad_norm_(trained_, options_.clip);
    static_cast<torch::optim::SGDOptions&>(optimizer_->param_groups()[0].options())
        .lr(options_.learning_rate * schedule_.at(step_++));
    optimizer_->step();
    return loss_sum;
  }

  const grow::testing::Values& values() const { return network_.values; }

 private:
  PopulationConfig options_;
  int64_t ranks_;
  RateSchedule schedule_;
  grow::testing::PlainNetwork network_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::vector<at::Tensor> trained_, statistics_;
  int64_t step_ = 0;
};

TEST(PopulationRanks, TrainAsPlainTorchDoesWithStatisticsOfEachPartWithoutSyncedNorms) {
  PopulationConfig options = shared_options();
  constexpr int64_t kEpochs = 3;
  for (const auto& [size, clip] : {std::pair{2, 0.0}, {2, 0.5}, {3, 0.5}}) {
    options.clip = clip;
    OneShard alone(options, small_setup(options));
    PlainRanks plain(alone, options, size);
    data::GatherIterator iterator(training_plan(options, alone.setup().device, at::kFloat),
                                  {alone.setup().dataset}, data::Split::kTrain);
    std::vector<double> losses;
    for (uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
      iterator.begin_epoch(epoch);
      double sum = 0;
      while (const auto batches = iterator.next_stacked())
        sum += plain.train(batches->front().fields[0][0], batches->front().labels[0]);
      losses.push_back(sum / static_cast<double>(iterator.length()));
    }
    as_ranks(size, [&](ranks::World& world) {
      OneShard shared(options, setup_of(options, world));
      for (int64_t epoch = 0; epoch < kEpochs; ++epoch) {
        const double want = losses[static_cast<size_t>(epoch)];
        EXPECT_NEAR(shared.train_epoch().lanes[0].trained.loss, want, 1e-5 * want) << "epoch " << epoch;
      }
      for (const auto& each : shared.population().lane_values(0)) {
        const at::Tensor& want = plain.values().at(each.name);
        EXPECT_LT((each.tensor - want).abs().max().item<double>(),
                  1e-4 * (1 + want.abs().max().item<double>()))
            << each.name << ", " << world.size() << " ranks";
      }
    });
  }
}

TEST(PopulationRanks, HaveTheSameBitsAfterEveryEpoch) {
  for (const bool sync_norm : {false, true}) {
    PopulationConfig options = shared_options();
    options.epochs = 3;
    options.sync_norm = sync_norm;
    std::vector<Tensors> lanes(3);
    std::vector<std::vector<EpochRecord>> epochs(3);
    std::vector<LaneScore> tests(3);
    as_ranks(3, [&](ranks::World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      OneShard shared(options, setup_of(options, world));
      for (int64_t epoch = 0; epoch < options.epochs; ++epoch) {
        epochs[rank].push_back(shared.train_epoch());
        EXPECT_EQ(shared.validation().sums().select(0, 0).select(0, 2).item<double>(), 20)
            << "every validation sample, once";
      }
      lanes[rank] = copy_of_lane(shared, 0);
      tests[rank] = shared.test()[0];
    });
    for (size_t rank = 1; rank < 3; ++rank) {
      expect_same_lane(lanes[rank], lanes[0], "rank " + std::to_string(rank));
      for (size_t i = 0; i < epochs[0].size(); ++i) {
        const LaneRecord &own = epochs[rank][i].lanes[0], &first = epochs[0][i].lanes[0];
        EXPECT_EQ(own.trained.loss, first.trained.loss);
        EXPECT_EQ(own.trained.gradient_norm, first.trained.gradient_norm);
        EXPECT_EQ(own.validated.loss, first.validated.loss);
        EXPECT_EQ(own.validated.accuracy, first.validated.accuracy);
        EXPECT_GT(epochs[rank][i].bytes_between_ranks, 0);
      }
      EXPECT_EQ(tests[rank].loss, tests[0].loss);
    }
  }
}

// A host that a program brings: one norm, by HostContext::norm().
class OneConv final : public grow::Host {
 public:
  explicit OneConv(const grow::HostBuild& build)
      : Host(build, {{.name = "s", .channels = 4, .height = 4, .width = 4}}),
        conv_({build.frame.lanes, build.frame.in_channels, 4, 3, {.padding = 1}}, build.options,
              build.compute),
        norm_(build.frame.lanes, 4, build.options),
        classifier_({build.frame.lanes, 4, build.frame.num_classes}, build.options) {
    add("conv", conv_);
    add("norm", norm_);
    add("classifier", classifier_);
    initialise(build.frame.seed);
  }
  at::Tensor forward(const at::Tensor& x, const grow::HostContext& context) override {
    at::Tensor h =
        context.norm(norm_, conv_.forward(enter(x)), lanes::Activation::kRelu, lanes::Pooling::k2x2);
    return classifier_.forward(lanes::lane_global_average_pool(context.grow(0, std::move(h))));
  }

 private:
  lanes::LaneConv2d conv_;
  lanes::LaneBatchNorm2d norm_;
  lanes::LaneLinear classifier_;
};

TEST(PopulationRanks, HaveTheSameStatisticsUnderAHostOfAProgramsOwn) {
  PopulationConfig options = shared_options();
  const auto with_host = [](testing::SmallSetup setup) {
    setup.host = [](const grow::HostBuild& build) { return std::make_unique<OneConv>(build); };
    setup.shape.reset();
    return setup;
  };
  OneShard alone(options, with_host(small_setup(options)));
  alone.step().begin_epoch(0);
  alone.step().run();
  options.sync_norm = true;
  std::vector<Tensors> statistics(3);
  as_ranks(3, [&](ranks::World& world) {
    OneShard shared(options, with_host(setup_of(options, world)));
    shared.step().begin_epoch(0);
    shared.step().run();
    expect_rounded(statistics_of(shared), statistics_of(alone));
    statistics[static_cast<size_t>(world.rank())] = statistics_of(shared);
  });
  ASSERT_EQ(statistics[0].size(), 2u);
  for (size_t rank = 1; rank < 3; ++rank)
    expect_same_lane(statistics[rank], statistics[0], "rank " + std::to_string(rank));
}

TEST(PopulationRanks, BeginWithTheNetworkOfRank0) {
  PopulationConfig options = shared_options();
  OneShard alone(options, small_setup(options));
  as_ranks(2, [&](ranks::World& world) {
    PopulationConfig own = options;
    own.seed += static_cast<uint64_t>(world.rank());  // another processor's bits
    OneShard shared(own, setup_of(own, world));
    expect_same_lane(copy_of_lane(shared, 0), copy_of_lane(alone, 0), "a first value");
  });
}

// The loss of one rank alone, whose gradients are finite: that much every rank must hear of.
TEST(PopulationRanks, LeaveOutAStepThatIsNotFiniteAtOneOfThem) {
  const PopulationConfig options = shared_options();
  as_ranks(2, [&](ranks::World& world) {
    OneShard shared(options, setup_of(options, world));
    if (!world.leads())
      for (const auto& each : shared.population().lane_values(0))
        if (each.name == "host.classifier.bias")  // all classes but one are impossible
          each.tensor.narrow(0, 1, each.tensor.size(0) - 1).fill_(-std::numeric_limits<float>::infinity());
    shared.population().refresh();
    const auto before = copy_of_lane(shared, 0);
    shared.step().begin_epoch(0);
    shared.step().run();
    for (const auto& [name, tensor] : copy_of_lane(shared, 0)) {
      if (name.find("running") != std::string::npos) continue;
      EXPECT_TRUE(at::equal(tensor, before.at(name))) << name;
    }
    for (const auto& [name, gradient] : gradients_of(shared))
      EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << name;
    EXPECT_EQ(shared.step().metrics()[0].non_finite, 1);
  });
}

TEST(PopulationRanks, GoBackTogetherWhenOneOfThemCollapses) {
  const PopulationConfig options = shared_options();
  as_ranks(2, [&](ranks::World& world) {
    OneShard shared(options, setup_of(options, world));
    EXPECT_EQ(shared.train_epoch().lanes[0].outcome, LaneOutcome::kTrained);
    const auto good = copy_of_lane(shared, 0);
    if (!world.leads()) testing::poison(shared, 0);
    const LaneRecord lane = shared.train_epoch().lanes[0];
    EXPECT_EQ(lane.outcome, LaneOutcome::kRolledBack);
    EXPECT_EQ(lane.verdict, Verdict::kNotFinite);
    EXPECT_EQ(lane.rate_factor, 0.5);
    expect_same_lane(copy_of_lane(shared, 0), good, "the last good state");
    EXPECT_EQ(shared.train_epoch().lanes[0].outcome, LaneOutcome::kTrained);
  });
}

// Finite, and surely wrong.
void turn_answers_round(Shard& shard) {
  for (const auto& each : shard.population().lane_values(0))
    if (each.name == "host.classifier.weight") each.tensor.mul_(-1000);
  shard.population().refresh();
}

// Does as another one, and keeps what rank 0 reads of lane 1.
class Listener final : public Controller {
 public:
  explicit Listener(std::shared_ptr<Controller> other) : other_(std::move(other)) {}

  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override { return other_->decide(lanes); }
  at::Tensor act(const EpochReadings& readings) override {
    is_lost.push_back(readings.account.frozen()[1].item<bool>());
    return {};
  }
  std::vector<bool> is_lost;  // epoch by epoch

 private:
  std::shared_ptr<Controller> other_;
};

TEST(PopulationRanks, CompareANetworkAnewThatLostASeedAtAnotherRank) {
  PopulationConfig options = small_options(2);
  options.epochs = 10;
  as_ranks(2, [&](ranks::World& world) {
    PopulationTrainer trainer(options, {small_setup(options)}, at::kCPU, OnFailure::kRollBack, {}, world);
    Listener controller(testing::blended_otherwise(1, 0.5f));
    for (int epoch = 1; epoch <= 6; ++epoch) trainer.train_epoch(controller);
    for (const LaneOutcome wanted : {LaneOutcome::kRolledBack, LaneOutcome::kTrained}) {
      if (!world.leads()) turn_answers_round(trainer.shard(0));
      const LaneRecord lane = trainer.train_epoch(controller).lanes.back();
      EXPECT_EQ(lane.lane, 1);
      EXPECT_EQ(lane.outcome, wanted);
      if (!world.leads()) continue;
      EXPECT_EQ(controller.is_lost.back(), wanted == LaneOutcome::kRolledBack);
    }
  });
}

TEST(PopulationRanks, RefuseAPartThatNormsCannotBeTrainedOn) {
  PopulationConfig options = shared_options();
  options.batch = 2;
  const auto make = [&](ranks::World& world) {
    testing::SmallSetup setup = setup_of(options, world);
    setup.shape->n_blocks = 4;  // the last sees images of 1 x 1
    setup.shape->pool_layers = 3;
    setup.host = grow::cnn_host(*setup.shape);
    OneShard(options, setup).step().run();
  };
  as_ranks(2, [&](ranks::World& world) {
    EXPECT_ERROR(make(world), UsageError, "--batch, of which a rank has 1", "single value");
  });
  options.sync_norm = true;
  as_ranks(2, make);
}

TEST(PopulationRanks, RefuseABatchLargerThanTheData) {
  PopulationConfig options = shared_options();
  options.batch = 42;  // 40 samples are left to train on, and each part would fit
  as_ranks(2, [&](ranks::World& world) {
    EXPECT_ERROR(OneShard(options, setup_of(options, world)), UsageError, "--batch 42", "40 samples");
  });
}

}  // namespace
}  // namespace espalier::train
