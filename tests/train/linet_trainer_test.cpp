#include "espalier/train/linet_trainer.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/train/small_linet.h"

namespace espalier::train {
namespace {

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
  LinetOptions options = small_linet_options();
  options.optimizer = "sgd";
  options.momentum = 0;
  options.weight_decay = 0;
  options.schedule = "constant";
  options.warm_up = 0;
  options.rates = "1,0.5,0,2";
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
  LinetOptions options = small_linet_options();
  options.optimizer = "sgd";
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
  LinetOptions with = small_linet_options(), without = small_linet_options();
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
    LinetOptions options = small_linet_options();
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
  LinetOptions options = small_linet_options();
  options.modality_dropout = 0.4;
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
  double of_classes = 0;
  for (size_t label = 0; label < test.whole.confusion.size(); ++label) {
    int64_t of_class = 0;
    for (const int64_t count : test.whole.confusion[label]) of_class += count;
    ASSERT_EQ(of_class, 2);  // twenty samples of ten classes
    samples += of_class;
    right += test.whole.confusion[label][label];
    of_classes += static_cast<double>(test.whole.confusion[label][label]) / 2;
  }
  EXPECT_DOUBLE_EQ(test.whole.mean_class_accuracy, of_classes / 10);
  EXPECT_EQ(samples, 20);
  EXPECT_DOUBLE_EQ(test.whole.accuracy, static_cast<double>(right) / 20);
  ASSERT_EQ(test.accuracy_without.size(), 3u);
  ASSERT_EQ(test.whole.shares.size(), 3u);
  double all = 0;
  for (const double share : test.whole.shares) all += share;
  EXPECT_NEAR(all, 1, 1e-6);
}

TEST(LinetTrainer, FreezesStreamsAndEndsWhereNothingImproves) {
  LinetOptions options = small_linet_options();
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

TEST(LinetTrainer, TakesFieldsAsStreamsInTheOrderThatIsAskedFor) {
  LinetOptions options = small_linet_options();
  options.streams = "orth,rgb";
  const auto trainer = small_linet(options);
  EXPECT_EQ(trainer->stream_names(), (std::vector<std::string>{"orth", "rgb"}));
  EXPECT_EQ(trainer->net().shape().in_channels, (std::vector<int64_t>{1, 3}));
  options.streams = "rgb,infrared";
  EXPECT_ERROR(small_linet(options), UsageError, "--streams", "infrared", "rgb, depth, orth");
  options.streams = "";
  options.rates = "1,2";
  EXPECT_ERROR(small_linet(options), UsageError, "rates", "4 factors", "got 2");
  options.rates = "1,x,1,1";
  EXPECT_ERROR(small_linet(options), UsageError, "--rates", "'x'");
  options.rates = "";
  options.monitor = false;
  options.stream_patience = 2;
  EXPECT_ERROR(small_linet(options), UsageError, "--stream-patience", "--no-monitor");
}

}  // namespace
}  // namespace espalier::train
