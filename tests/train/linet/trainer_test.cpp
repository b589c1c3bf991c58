#include "espalier/train/linet/trainer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/train/linet/small_linet.h"

namespace espalier::train {
namespace {

using linet::LinetRules;

using testing::copy_of;
using testing::small_linet;
using testing::small_linet_options;

const int kOneThread = (at::set_num_threads(1), 1);

// Which path a tensor belongs to, of three streams.
int64_t path_of(const std::string& name) {
  if (name.find(".mix.") != std::string::npos) return 3;
  const size_t at = name.find("streams.");
  return at == std::string::npos ? 3 : name[at + 8] - '0';
}

// The largest change of any parameter of a path.
double moved(linet::Linet& net, const std::map<std::string, at::Tensor>& before, int64_t path) {
  double most = 0;
  for (const linet::StreamTensor& tensor : net.stream_tensors())
    if (tensor.parameter && path_of(tensor.name) == path)
      most = std::max(most, (tensor.value() - before.at(tensor.name)).abs().max().item<double>());
  return most;
}

TEST(LinetStep, MovesEveryPathByItsOwnRate) {
  LinetConfig options = small_linet_options();
  options.optimizer = OptimizerKind::kSgd;
  options.momentum = 0;
  options.weight_decay = 0;
  options.schedule = RateCurve::kConstant;
  options.warm_up = 0;
  options.rates = {1, 0.5, 0, 2};
  const auto trainer = small_linet(options);
  const auto before = copy_of(trainer->net());
  trainer->step().begin_epoch(0);
  trainer->step().run();
  const double factors[] = {1, 0.5, 0, 2};
  for (const linet::StreamTensor& tensor : trainer->net().stream_tensors()) {
    if (!tensor.parameter) continue;
    const double rate = options.learning_rate * factors[path_of(tensor.name)];
    const at::Tensor expected = before.at(tensor.name) - rate * tensor.gradient();
    EXPECT_LE((tensor.value() - expected).abs().max().item<double>(), 1e-6) << tensor.name;
  }
  EXPECT_EQ(moved(trainer->net(), before, 2), 0);
  EXPECT_GT(moved(trainer->net(), before, 3), 0);
}

TEST(LinetStep, ClipsTheNormOfAllGradientsTogether) {
  LinetConfig options = small_linet_options();
  options.optimizer = OptimizerKind::kSgd;
  options.clip = 1e-3;
  const auto trainer = small_linet(options);
  trainer->step().begin_epoch(0);
  trainer->step().run();
  double squares = 0;
  for (const linet::StreamTensor& tensor : trainer->net().stream_tensors())
    if (tensor.parameter) squares += tensor.gradient().to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(std::sqrt(squares), 1e-3, 1e-5);
  EXPECT_GT(trainer->step().metrics().gradient_norms[3], 1e-2);
}

TEST(LinetStep, TrainsMonitorsWithoutInfluenceOnTheNetwork) {
  LinetConfig with = small_linet_options(), without = small_linet_options();
  without.monitor = false;
  const auto watched = small_linet(with), alone = small_linet(without);
  const LinetEpoch a = watched->train_epoch(), b = alone->train_epoch();
  EXPECT_EQ(a.trained.loss, b.trained.loss);
  EXPECT_EQ(a.validated.accuracy, b.validated.accuracy);
  EXPECT_EQ(a.trained.stream_accuracies.size(), 3u);
  EXPECT_TRUE(b.trained.stream_accuracies.empty());
  const auto x = copy_of(watched->net()), y = copy_of(alone->net());
  for (const auto& [name, tensor] : x) EXPECT_TRUE(at::equal(tensor, y.at(name))) << name;
}

TEST(LinetStep, LeavesAFrozenStreamAsItIs) {
  const auto trainer = small_linet(small_linet_options());
  trainer->step().freeze(1);
  const auto before = copy_of(trainer->net());
  trainer->train_epoch();
  EXPECT_EQ(moved(trainer->net(), before, 1), 0);
  for (const int64_t path : {0, 2, 3}) EXPECT_GT(moved(trainer->net(), before, path), 0) << path;
}

TEST(LinetStep, LeavesOutAStepThatIsNotFinite) {
  const auto trainer = small_linet(small_linet_options());
  for (const linet::StreamTensor& tensor : trainer->net().stream_tensors())
    if (tensor.name == "fc.bias") tensor.value().fill_(std::numeric_limits<float>::quiet_NaN());
  const auto before = copy_of(trainer->net());
  EXPECT_ERROR(trainer->train_epoch(), Error, "epoch 1", "not finite", "--learning-rate");
  for (int64_t path = 0; path < 3; ++path) EXPECT_EQ(moved(trainer->net(), before, path), 0);
}

TEST(LinetStep, MakesStreamsContributeAlikeWhereThatIsAskedFor) {
  const auto balance_after = [](double weight) {
    LinetConfig options = small_linet_options();
    options.balance = weight;
    options.epochs = 6;
    const auto trainer = small_linet(options);
    double last = 0;
    for (int64_t epoch = 0; epoch < options.epochs; ++epoch) last = trainer->train_epoch().trained.balance;
    return last;
  };
  EXPECT_EQ(balance_after(0), 0);  // not computed
  EXPECT_LT(balance_after(10), 0.5 * balance_after(1e-9));
}

TEST(LinetTrainer, IsTheSameFromTheSameSeedWithAllThatIsRandom) {
  LinetConfig options = small_linet_options();
  options.modality_dropout = 0.4;
  options.modality_start = 1;
  options.modality_ramp = 1;
  options.dropout = 0.3;
  const auto first = small_linet(options), second = small_linet(options);
  for (int epoch = 0; epoch < 2; ++epoch) {
    const LinetEpoch a = first->train_epoch(), b = second->train_epoch();
    EXPECT_EQ(a.trained.loss, b.trained.loss);
    EXPECT_EQ(a.validated.loss, b.validated.loss);
  }
  options.seed = 6;
  EXPECT_NE(small_linet(options)->train_epoch().trained.loss, first->train_epoch().trained.loss);
}

TEST(LinetTrainer, CountsEveryAnswerAndWhatAStreamIsWorth) {
  const auto trainer = small_linet(small_linet_options());
  trainer->train_epoch();
  const LinetTest test = trainer->test();
  int64_t samples = 0, right = 0;
  double class_accuracies = 0;
  for (size_t label = 0; label < test.whole.confusion.size(); ++label) {
    int64_t class_samples = 0;
    for (const int64_t count : test.whole.confusion[label]) class_samples += count;
    ASSERT_EQ(class_samples, 2);  // twenty samples of ten classes
    samples += class_samples;
    right += test.whole.confusion[label][label];
    class_accuracies += static_cast<double>(test.whole.confusion[label][label]) / 2;
  }
  EXPECT_DOUBLE_EQ(test.whole.mean_class_accuracy, class_accuracies / 10);
  EXPECT_EQ(samples, 20);
  EXPECT_DOUBLE_EQ(test.whole.accuracy, static_cast<double>(right) / 20);
  ASSERT_EQ(test.accuracy_without.size(), 3u);
  ASSERT_EQ(test.whole.shares.size(), 3u);
  double all = 0;
  for (const double share : test.whole.shares) all += share;
  EXPECT_NEAR(all, 1, 1e-6);
}

TEST(LinetTrainer, FreezesStreamsAndEndsWhereNothingImproves) {
  LinetConfig options = small_linet_options();
  options.learning_rate = 0;  // nothing improves but the streams' heads
  options.patience = 2;
  const auto trainer = small_linet(options);
  trainer->train_epoch();
  EXPECT_FALSE(trainer->train_epoch().is_last);
  EXPECT_TRUE(trainer->train_epoch().is_last);
  options.stream_patience = 1;
  options.epochs = 30;
  const auto freezing = small_linet(options);
  std::vector<int64_t> frozen;
  for (int epoch = 0; epoch < 30; ++epoch)
    for (const int64_t stream : freezing->train_epoch().frozen) frozen.push_back(stream);
  std::ranges::sort(frozen);
  EXPECT_EQ(frozen, (std::vector<int64_t>{0, 1, 2}));

  // Also their running statistics stay; the integrated path's move on.
  std::map<std::string, at::Tensor> before;
  for (const linet::StreamTensor& tensor : freezing->net().stream_tensors())
    if (tensor.name.find("running_") != std::string::npos) before[tensor.name] = tensor.value().clone();
  freezing->train_epoch();
  for (const linet::StreamTensor& tensor : freezing->net().stream_tensors())
    if (const auto found = before.find(tensor.name); found != before.end()) {
      EXPECT_EQ(at::equal(found->second, tensor.value()), tensor.name.find(".streams.") != std::string::npos)
          << tensor.name;
    }
}

// What the original's rules say of a stream: better by more than 0.001, beginning at 0, or one epoch more
// without; frozen when there were more of these than the patience.
struct StreamHistory {
  double best = 0;
  int best_epoch = 0;
  int64_t since = 0;
  int frozen_epoch = 0;  // 0: not yet

  void add(int epoch, double accuracy, int64_t patience) {
    if (frozen_epoch > 0) return;
    if (accuracy > best + 0.001) {
      best = accuracy;
      best_epoch = epoch;
      since = 0;
    } else if (++since > patience) {
      frozen_epoch = epoch;
    }
  }
};

TEST(LinetTrainer, CountsWhatIsBetterByTheRules) {
  BestSoFar original = BestSoFar::for_stream(LinetRules::kOriginal),
            ours = BestSoFar::for_stream(LinetRules::kEspalier);
  EXPECT_FALSE(original.takes_stream(0, LinetRules::kOriginal));  // begins at 0
  EXPECT_TRUE(ours.takes_stream(0, LinetRules::kEspalier));
  EXPECT_TRUE(original.takes_stream(0.5, LinetRules::kOriginal));
  EXPECT_TRUE(ours.takes_stream(0.5, LinetRules::kEspalier));
  EXPECT_FALSE(original.takes_stream(0.5009, LinetRules::kOriginal));  // by no more than 0.001
  EXPECT_TRUE(ours.takes_stream(0.5009, LinetRules::kEspalier));
  EXPECT_TRUE(original.takes_stream(0.5011, LinetRules::kOriginal));
  EXPECT_EQ(original.accuracy, 0.5011);
  const bool frozen_by_original[] = {false, false, true}, frozen_by_ours[] = {false, true, true};
  for (int epoch = 0; epoch < 3; ++epoch) {
    EXPECT_FALSE(original.takes_stream(0.4, LinetRules::kOriginal));
    EXPECT_FALSE(ours.takes_stream(0.4, LinetRules::kEspalier));
    EXPECT_EQ(original.is_out_of_patience(2, LinetRules::kOriginal), frozen_by_original[epoch]) << epoch;
    EXPECT_EQ(ours.is_out_of_patience(2, LinetRules::kEspalier), frozen_by_ours[epoch]) << epoch;
  }
}

LinetConfig freezing_options(LinetRules rules) {
  LinetConfig options = small_linet_options();
  options.rules = rules;
  options.optimizer = OptimizerKind::kSgd;
  options.learning_rate = 0.3;
  options.schedule = RateCurve::kConstant;
  options.warm_up = 0;
  options.stream_patience = 1;
  options.epochs = 20;
  return options;
}

TEST(LinetTrainer, GivesAStreamItsBestWeightsBackBeforeItIsFrozen) {
  const LinetConfig options = freezing_options(LinetRules::kOriginal);
  const auto trainer = small_linet(options);
  std::map<int, std::map<std::string, at::Tensor>> after;  // by epoch, from 1
  std::vector<StreamHistory> streams(3);
  int checked = 0;
  // From the first batch of the next epoch on.
  trainer->at_every_batch([&] {
    const auto now = copy_of(trainer->net());
    for (size_t stream = 0; stream < 3; ++stream)
      if (const StreamHistory& own = streams[stream]; own.frozen_epoch > 0) {
        const std::string name = fmt::format("conv1.streams.{}.weight", stream);
        EXPECT_TRUE(at::equal(now.at(name), after[own.best_epoch].at(name))) << name;
      }
  });
  for (int epoch = 1; epoch <= options.epochs && !trainer->is_over(); ++epoch) {
    const LinetEpoch done = trainer->train_epoch();
    after[epoch] = copy_of(trainer->net());
    for (size_t stream = 0; stream < 3; ++stream) {
      StreamHistory& own = streams[stream];
      const bool was_frozen = own.frozen_epoch > 0;
      own.add(epoch, done.validated.stream_accuracies[stream], options.stream_patience);
      const bool is_told = std::ranges::find(done.frozen, static_cast<int64_t>(stream)) != done.frozen.end();
      EXPECT_EQ(is_told, own.frozen_epoch == epoch) << "stream " << stream << ", epoch " << epoch;
      if (!was_frozen) continue;
      // Parameters and running statistics, bit for bit those of its best epoch.
      for (const auto& [name, value] : after[epoch]) {
        if (path_of(name) != static_cast<int64_t>(stream) || name.ends_with("num_batches_tracked")) continue;
        EXPECT_TRUE(at::equal(value, after[own.best_epoch].at(name))) << name << " in epoch " << epoch;
        if (name.ends_with("conv1.streams." + std::to_string(stream) + ".weight")) {
          EXPECT_FALSE(at::equal(value, after[own.frozen_epoch].at(name))) << name;
          checked += 1;
        }
      }
    }
  }
  EXPECT_GT(checked, 0) << "no stream was frozen before the last epoch: nothing was tested";
  EXPECT_TRUE(trainer->is_over());
}

TEST(LinetTrainer, FreezesAStreamAsItIsByOurOwnRules) {
  const LinetConfig options = freezing_options(LinetRules::kEspalier);
  const auto trainer = small_linet(options);
  std::map<std::string, at::Tensor> frozen;
  int64_t stream = -1;
  for (int epoch = 1; epoch <= options.epochs && stream < 0; ++epoch)
    if (const LinetEpoch done = trainer->train_epoch(); !done.frozen.empty()) {
      stream = done.frozen.front();
      frozen = copy_of(trainer->net());
    }
  ASSERT_GE(stream, 0);
  trainer->train_epoch();
  for (const auto& [name, value] : copy_of(trainer->net()))
    if (path_of(name) == stream && !name.ends_with("num_batches_tracked")) {
      EXPECT_TRUE(at::equal(value, frozen.at(name))) << name;
    }
}

TEST(LinetTrainer, EndsWithTheLastFrozenStreamByTheOriginalsRulesAlone) {
  for (const LinetRules rules : {LinetRules::kOriginal, LinetRules::kEspalier}) {
    LinetConfig options = freezing_options(rules);
    options.learning_rate = 0;  // only the heads move
    options.epochs = 40;
    const auto trainer = small_linet(options);
    bool are_all_frozen = false, is_last = false;
    while (!trainer->is_over()) {
      const LinetEpoch done = trainer->train_epoch();
      are_all_frozen = done.are_all_frozen;
      is_last = done.is_last;
    }
    EXPECT_TRUE(are_all_frozen) << static_cast<int>(rules);
    EXPECT_EQ(is_last, rules == LinetRules::kOriginal);
    EXPECT_EQ(trainer->epochs_done() < options.epochs, rules == LinetRules::kOriginal);
  }
}

TEST(LinetTrainer, BlanksNothingBeforeTheStartEpoch) {
  const auto losses = [](int64_t start) {
    LinetConfig options = small_linet_options();
    options.modality_dropout = 0.8;
    options.modality_start = start;
    options.modality_ramp = 2;
    const auto trainer = small_linet(options);
    std::vector<double> all;
    for (int epoch = 0; epoch < 3; ++epoch) all.push_back(trainer->train_epoch().trained.loss);
    return all;
  };
  const std::vector<double> without = losses(1000), late = losses(2), at_once = losses(0);
  EXPECT_NE(at_once[0], without[0]);  // a part of the ramp already in the first epoch
  for (const size_t epoch : {0u, 1u}) EXPECT_EQ(late[epoch], without[epoch]) << epoch;
  EXPECT_NE(late[2], without[2]);
}

TEST(LinetTrainer, BalancesTheLastStageUnlessToldOtherwise) {
  const auto balance = [](LinetRules rules, BalanceLayer layer) {
    LinetConfig options = small_linet_options();
    options.rules = rules;
    options.balance = 1e-9;
    options.balance_layer = layer;
    return small_linet(options)->train_epoch().trained.balance;
  };
  EXPECT_EQ(balance(LinetRules::kOriginal, BalanceLayer::kAuto),
            balance(LinetRules::kOriginal, BalanceLayer::kLayer4));
  EXPECT_NE(balance(LinetRules::kOriginal, BalanceLayer::kAuto),
            balance(LinetRules::kOriginal, BalanceLayer::kAll));
  EXPECT_EQ(balance(LinetRules::kEspalier, BalanceLayer::kAuto),
            balance(LinetRules::kEspalier, BalanceLayer::kAll));
  // With three streams: sums of squares divided by 2 and by 3.
  EXPECT_NEAR(balance(LinetRules::kOriginal, BalanceLayer::kLayer4) /
                  balance(LinetRules::kEspalier, BalanceLayer::kLayer4),
              1.5, 1e-3);
}

TEST(LinetTrainer, RefusesWhatTheRulesDoNotHave) {
  LinetConfig options = small_linet_options();
  options.rules = linet::LinetRules::kEspalier;
  options.modality_start = 3;
  EXPECT_ERROR(small_linet(options), UsageError, "--modality-start 3", "espalier", "--linet-rules original");
  options = small_linet_options();
  options.streams = {"rgb"};
  options.modality_dropout = 0.25;
  EXPECT_ERROR(small_linet(options), UsageError, "--modality-dropout 0.25", "two streams", "--streams");
  options.modality_dropout = 0;
  options.balance = 0.5;
  EXPECT_ERROR(small_linet(options), UsageError, "--balance 0.5", "two streams");
  options.rules = linet::LinetRules::kEspalier;
  EXPECT_EQ(small_linet(options)->train_epoch().trained.balance, 0);
}

TEST(LinetTrainer, TakesFieldsAsStreamsInTheOrderThatIsAskedFor) {
  LinetConfig options = small_linet_options();
  options.streams = {"orth", "rgb"};
  const auto trainer = small_linet(options);
  EXPECT_EQ(trainer->stream_names(), (std::vector<std::string>{"orth", "rgb"}));
  EXPECT_EQ(trainer->net().shape().in_channels, (std::vector<int64_t>{1, 3}));
  options.streams = {"rgb", "infrared"};
  EXPECT_ERROR(small_linet(options), UsageError, "--streams", "infrared", "rgb, depth, orth");
  options.streams = {"rgb", "depth", "rgb"};
  EXPECT_ERROR(small_linet(options), UsageError, "--streams 'rgb,depth,rgb'", "'rgb' twice");
  options.streams = {"rgb", ""};
  EXPECT_ERROR(small_linet(options), UsageError, "--streams", "empty name");
  options.streams = {};
  options.rates = {1, 2};
  EXPECT_ERROR(small_linet(options), UsageError, "rates", "4 factors", "got 2");
  options.rates = {};
  options.monitor = false;
  options.stream_patience = 2;
  EXPECT_ERROR(small_linet(options), UsageError, "--stream-patience", "--no-monitor");
}

}  // namespace
}  // namespace espalier::train
