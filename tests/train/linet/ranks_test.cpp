// One network that several ranks train, each on its part of every batch.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/linet/blanking.h"
#include "tests/support/message.h"
#include "tests/support/thread_ranks.h"
#include "tests/train/linet/small_linet.h"

namespace espalier::train {
namespace {

using espalier::testing::as_ranks;
using testing::copy_of;
using testing::small_linet_options;
using testing::small_streams;

const int kOneThread = (at::set_num_threads(1), 1);

// All that is random or depends on the batch is switched on.
LinetConfig shared_options() {
  LinetConfig options = small_linet_options();
  options.batch = 12;
  options.optimizer = OptimizerKind::kSgd;
  options.dropout = 0.2;
  options.modality_dropout = 0.5;
  options.modality_ramp = 0;
  options.balance = 0.1;
  return options;
}

std::unique_ptr<LinetTrainer> trainer_of(const LinetConfig& options,
                                         ranks::World& world = ranks::World::alone()) {
  return std::make_unique<LinetTrainer>(options, small_streams(), *options.device, world);
}

std::map<std::string, at::Tensor> gradients_of(linet::Linet& net) {
  std::map<std::string, at::Tensor> gradients;
  for (const lanes::NamedParameter& named : net.parameters())
    gradients[named.name] = named.parameter->gradient().clone();
  return gradients;
}

std::map<std::string, at::Tensor> statistics_of(linet::Linet& net) {
  std::map<std::string, at::Tensor> statistics;
  for (const auto& [name, buffer] : net.named_buffers()) statistics[name] = buffer.clone();
  return statistics;
}

// But for roundings: a sum of n values in fp32 is off by some sqrt(n) 2^-24 of their size, and twenty layers
// hand such errors on. What is all rounding (a gradient that is 0 in truth) is small beside the largest.
void expect_rounded(const std::map<std::string, at::Tensor>& actual,
                    const std::map<std::string, at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const auto& [name, tensor] : expected) largest = std::max(largest, tensor.abs().max().item<double>());
  for (const auto& [name, tensor] : expected) {
    const double size = std::max(tensor.abs().max().item<double>(), 1e-3 * largest);
    EXPECT_LE((actual.at(name) - tensor).abs().max().item<double>(), std::ldexp(size, -16)) << name;
  }
}

TEST(LinetRanks, TakeTheGradientsOfOneProcessWithSyncedNorms) {
  LinetConfig options = shared_options();
  const auto alone = trainer_of(options);
  alone->step().begin_epoch(0);
  alone->step().run();
  options.sync_norm = true;
  for (const int size : {2, 3})
    as_ranks(size, [&](ranks::World& world) {
      const auto shared = trainer_of(options, world);
      shared->step().begin_epoch(0);
      shared->step().run();
      expect_rounded(gradients_of(shared->net()), gradients_of(alone->net()));
      expect_rounded(statistics_of(shared->net()), statistics_of(alone->net()));
      std::map<std::string, at::Tensor> heads, expected;
      for (size_t i = 0; i < 2; ++i) {
        heads[std::to_string(i)] = shared->monitor()->parameters()[i].parameter->gradient().clone();
        expected[std::to_string(i)] = alone->monitor()->parameters()[i].parameter->gradient().clone();
      }
      expect_rounded(heads, expected);
      const LinetMetrics metrics = shared->step().metrics(), whole = alone->step().metrics();
      EXPECT_NEAR(metrics.loss, whole.loss, 1e-6 * whole.loss);
      EXPECT_NEAR(metrics.balance, whole.balance, 1e-5 * whole.balance);
      EXPECT_NEAR(metrics.gradient_norms[3], whole.gradient_norms[3], 1e-5 * whole.gradient_norms[3]);
      EXPECT_EQ(metrics.accuracy, whole.accuracy);
      EXPECT_EQ(metrics.norm_fallbacks, whole.norm_fallbacks);
      for (size_t stream = 0; stream < 3; ++stream)
        EXPECT_NEAR(metrics.stream_losses[stream], whole.stream_losses[stream], 1e-6);
    });
}

// Every part by itself in a network of its own, by the whole batch that one process has.
TEST(LinetRanks, AverageGradientsAndStatisticsOfTheirPartsWithout) {
  LinetConfig options = shared_options();
  options.dropout = 0;
  options.balance = 0;
  const int64_t ranks = 2, part = options.batch / ranks;
  const auto alone = trainer_of(options);
  alone->step().begin_epoch(0);
  const at::Tensor keep =
      linet::blanking_mask({.rules = options.rules, .streams = 3, .batch = options.batch}, options.seed,
                           at::zeros({1}, at::kDouble), at::full({1}, options.modality_dropout, at::kDouble));
  std::vector<std::unique_ptr<LinetTrainer>> own;
  for (int64_t rank = 0; rank < ranks; ++rank) own.push_back(trainer_of(options));
  alone->step().run();
  std::map<std::string, at::Tensor> gradients, statistics;
  const auto add = [&](std::map<std::string, at::Tensor>& to, const std::map<std::string, at::Tensor>& from) {
    for (const auto& [name, tensor] : from) {
      const at::Tensor share = tensor.to(at::kDouble) / static_cast<double>(ranks);
      to[name] = to.contains(name) ? to[name] + share : share;
    }
  };
  for (int64_t rank = 0; rank < ranks; ++rank) {
    linet::Linet& net = own[static_cast<size_t>(rank)]->net();
    std::vector<at::Tensor> images;
    for (const at::Tensor& field : alone->step().batch().images())
      images.push_back(field.narrow(1, rank * part, part));
    const linet::LinetOutput out =
        net.forward(images, {.keep = keep.narrow(1, rank * part, part).clone(at::MemoryFormat::Contiguous)});
    const at::Tensor labels = alone->step().batch().labels().narrow(1, rank * part, part);
    lanes::lane_backward(lanes::lane_cross_entropy(out.logits, labels.clone(at::MemoryFormat::Contiguous)),
                         lanes::without_names(net.parameters()));
    add(gradients, gradients_of(net));
    add(statistics, statistics_of(net));
  }
  statistics["num_batches"].fill_(1);
  as_ranks(static_cast<int>(ranks), [&](ranks::World& world) {
    const auto shared = trainer_of(options, world);
    shared->step().begin_epoch(0);
    shared->step().run();
    expect_rounded(gradients_of(shared->net()), gradients);
    expect_rounded(statistics_of(shared->net()), statistics);
  });
}

TEST(LinetRanks, HaveTheSameBitsAfterEveryEpoch) {
  for (const bool sync_norm : {false, true}) {
    LinetConfig options = shared_options();
    options.optimizer = OptimizerKind::kAdamW;
    options.sync_norm = sync_norm;
    options.stream_patience = 1;
    options.clip = 1;
    std::vector<std::map<std::string, at::Tensor>> nets(3);
    std::vector<std::vector<LinetEpoch>> epochs(3);
    std::vector<LinetTest> tests(3);
    as_ranks(3, [&](ranks::World& world) {
      const auto rank = static_cast<size_t>(world.rank());
      const auto trainer = trainer_of(options, world);
      EXPECT_EQ(trainer->steps_per_epoch(), 3);
      while (!trainer->is_over()) epochs[rank].push_back(trainer->train_epoch());
      nets[rank] = copy_of(trainer->net());
      tests[rank] = trainer->test();
    });
    for (size_t rank = 1; rank < 3; ++rank) {
      for (const auto& [name, tensor] : nets[0]) EXPECT_TRUE(at::equal(tensor, nets[rank][name])) << name;
      ASSERT_EQ(epochs[rank].size(), epochs[0].size());
      for (size_t i = 0; i < epochs[0].size(); ++i) {
        EXPECT_EQ(epochs[rank][i].trained.loss, epochs[0][i].trained.loss);
        EXPECT_EQ(epochs[rank][i].validated.loss, epochs[0][i].validated.loss);
        EXPECT_EQ(epochs[rank][i].validated.confusion, epochs[0][i].validated.confusion);
        EXPECT_EQ(epochs[rank][i].frozen, epochs[0][i].frozen);
      }
      EXPECT_EQ(tests[rank].accuracy_without, tests[0].accuracy_without);
    }
    int64_t scored = 0;
    for (const auto& row : tests[0].whole.confusion)
      for (const int64_t count : row) scored += count;
    EXPECT_EQ(scored, 20) << "every test sample, once";
  }
}

// Its loss alone, whose gradients are finite: that much every rank must hear of.
TEST(LinetRanks, LeaveOutAStepThatIsNotFiniteAtOneOfThem) {
  as_ranks(2, [&](ranks::World& world) {
    const auto trainer = trainer_of(shared_options(), world);
    if (!world.leads())
      for (const linet::StreamTensor& tensor : trainer->net().stream_tensors())
        if (tensor.name == "fc.bias")  // all classes but one are impossible
          tensor.value()
              .narrow(0, 1, tensor.value().size(0) - 1)
              .fill_(-std::numeric_limits<float>::infinity());
    const auto before = copy_of(trainer->net());
    trainer->step().begin_epoch(0);
    trainer->step().run();
    for (const linet::StreamTensor& tensor : trainer->net().stream_tensors()) {
      if (!tensor.parameter) continue;
      EXPECT_TRUE(at::equal(tensor.value(), before.at(tensor.name))) << tensor.name;
      EXPECT_TRUE(tensor.gradient().isfinite().all().item<bool>()) << tensor.name;
    }
    EXPECT_EQ(trainer->step().metrics().non_finite, 1);
  });
}

TEST(LinetRanks, RefuseAPartThatNormsCannotBeTrainedOn) {
  LinetConfig options = shared_options();
  options.batch = 2;
  as_ranks(2, [&](ranks::World& world) {
    EXPECT_ERROR(trainer_of(options, world), UsageError, "--batch, of which a rank has 1", "single value");
  });
  options.sync_norm = true;
  as_ranks(2, [&](ranks::World& world) { trainer_of(options, world); });
}

TEST(LinetRanks, RefuseABatchThatDoesNotDivide) {
  LinetConfig options = shared_options();
  options.batch = 10;
  as_ranks(3, [&](ranks::World& world) {
    EXPECT_ERROR(options_of_rank(options, world), UsageError, "--batch 10", "3 ranks", "multiple of 3", "12");
  });
}

}  // namespace
}  // namespace espalier::train
