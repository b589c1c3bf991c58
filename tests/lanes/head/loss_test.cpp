#include "espalier/lanes/head/loss.h"

#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::Dice;
using testing::Layer;
using testing::random_lanes;
using testing::random_mask;
using testing::Tensors;
namespace F = torch::nn::functional;

at::Tensor random_labels(int64_t lanes, int64_t batch, int64_t classes) {
  at::Tensor labels = at::randint(classes, {lanes, batch}, at::kLong);
  labels.slice(1, 1).masked_fill_(at::rand({lanes, batch - 1}) < 0.2, -100);
  return labels.to(testing::test_device());
}

enum class Smoothing { kNone, kAlike, kByLane };

// Every lane's share in percent, [L] i64, so that it is no input with a gradient; by lane: nothing for the
// first, and another for each.
at::Tensor percents(int64_t lanes, Smoothing smoothing) {
  if (smoothing == Smoothing::kNone) return {};
  return (smoothing == Smoothing::kAlike ? at::full({lanes}, 10, at::kLong)
                                         : at::arange(lanes, at::kLong) * 15)
      .to(testing::test_device());
}

at::Tensor shares(const at::Tensor& percents) {
  return percents.defined() ? percents.to(at::kDouble) / 100 : at::Tensor();
}

// Inputs: logits, labels, mask, smoothing. torch knows -100 alone, so the mask is written into the labels.
Layer loss_layer(int64_t lanes, int64_t batch, int64_t classes, Smoothing smoothing, bool masked) {
  return {
      .stacked = [=](const Tensors& in) { return lane_cross_entropy(in[0], in[1], in[2], shares(in[3])); },
      .torch =
          [=](const Tensors& in) {
            const at::Tensor labels = in[2].defined() ? in[1].masked_fill(in[2].logical_not(), -100) : in[1];
            const double share = in[3].defined() ? shares(in[3]).item<double>() : 0;
            return F::cross_entropy(in[0], labels, F::CrossEntropyFuncOptions().label_smoothing(share));
          },
      .inputs = {random_lanes({lanes, batch, classes}) * 3, random_labels(lanes, batch, classes),
                 masked ? random_mask(lanes, batch, 1) : at::Tensor(), percents(lanes, smoothing)}};
}

void expect_loss_contracts() {
  for (uint64_t seed = 0; seed < testing::num_seeds(24); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Dice dice(seed);
    const Layer layer = loss_layer(dice.roll(1, 5), dice.roll(1, 20), dice.roll(2, 12),
                                   static_cast<Smoothing>(dice.roll(0, 2)), dice.roll(0, 1) == 1);
    testing::expect_equals_torch(layer);
    testing::expect_same_alone(layer);
    testing::expect_isolated(layer);
  }
}

TEST(LaneCrossEntropy, EqualsTorchLaneByLaneOverRandomShapesAndMasks) {
  expect_loss_contracts();
}

TEST(LaneCrossEntropyCuda, EqualsTorchLaneByLaneOverRandomShapesAndMasks) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_loss_contracts();
}

TEST(LaneAccuracyCuda, CountsAsTheCpuDoes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  torch::manual_seed(3);
  for (const int64_t classes : {1, 2, 10, 33, 100}) {
    const at::Tensor logits = at::randn({3, 70, classes}).round(), labels = random_labels(3, 70, classes);
    const at::Tensor mask = random_mask(3, 70, 1);
    logits[1][5][0] = std::numeric_limits<float>::quiet_NaN();
    const LaneAccuracy want = lane_accuracy(logits, labels, mask);
    const LaneAccuracy got = lane_accuracy(logits.to(at::kCUDA), labels.to(at::kCUDA), mask.to(at::kCUDA));
    EXPECT_TRUE(at::equal(got.num_correct.cpu(), want.num_correct)) << classes;
    EXPECT_TRUE(at::equal(got.num_valid.cpu(), want.num_valid)) << classes;
  }
}

// Twice, so that it adds; what was there stays a part of it. Samples left out by a mask, by their label, a
// lane without any, and one with a NaN.
void expect_added_sums() {
  const at::Device device = testing::test_device();
  torch::manual_seed(4);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf})
    for (const int64_t batch : {1, 5, 70, 600})
      for (const int64_t classes : {1, 2, 10, 16, 17, 33, 100})
        for (const bool has_mask : {false, true}) {
          const int64_t lanes = 4;
          const at::Tensor logits = at::randn({lanes, batch, classes}).mul(2).round().to(type).to(device);
          at::Tensor labels = random_labels(lanes, batch, classes);
          labels[2].fill_(-100);
          logits[3][0][classes - 1] = std::numeric_limits<float>::quiet_NaN();
          const at::Tensor mask = has_mask ? random_mask(lanes, batch, 1).to(device) : at::Tensor();
          const at::Tensor sums = at::ones({3, lanes}, at::TensorOptions(at::kDouble).device(device));
          const at::Tensor plain = lane_cross_entropy(logits, labels, mask);
          for (int i = 0; i < 2; ++i)
            testing::expect_same_bits(lane_cross_entropy(logits, labels, mask, {}, sums), plain, "losses");
          at::Tensor valid = labels != -100;
          if (has_mask) valid = valid.logical_and(mask);
          const at::Tensor hits = (logits.argmax(2) == labels).logical_and(valid).sum(1),
                           count = valid.sum(1);
          const at::Tensor want =
              at::stack({(plain * count).to(at::kDouble), hits.to(at::kDouble), count.to(at::kDouble)});
          EXPECT_TRUE(at::allclose(sums.cpu(), (1 + want + want).cpu(), 0, 0, /*equal_nan=*/true))
              << type << ", " << batch << " samples of " << classes << " classes, mask " << has_mask << ": "
              << sums << want;
        }
}

TEST(LaneCrossEntropy, AddsToTheSumsOfAnEpoch) {
  expect_added_sums();
}

TEST(LaneCrossEntropyCuda, AddsToTheSumsOfAnEpoch) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const testing::OnCuda cuda;
  expect_added_sums();
}

TEST(LaneCrossEntropy, AddsNothingWhereThereIsNoSample) {
  const at::Tensor sums = at::ones({3, 2}, at::kDouble);
  const at::Tensor loss =
      lane_cross_entropy(at::zeros({2, 0, 3}), at::zeros({2, 0}, at::kLong), {}, {}, sums);
  EXPECT_TRUE(at::equal(loss, at::zeros({2})));
  EXPECT_TRUE(at::equal(sums, at::ones({3, 2}, at::kDouble)));
}

TEST(LaneCrossEntropy, RefusesSumsOfAnotherShapeOrType) {
  const at::Tensor logits = at::randn({2, 3, 4}), labels = at::zeros({2, 3}, at::kLong);
  EXPECT_ERROR(lane_cross_entropy(logits, labels, {}, {}, at::zeros({3, 2})), c10::Error, "sums", "Double",
               "Float");
  EXPECT_ERROR(lane_cross_entropy(logits, labels, {}, {}, at::zeros({2, 3}, at::kDouble)), c10::Error, "sums",
               "[3,L]");
  EXPECT_ERROR(lane_cross_entropy(logits, labels, {}, {}, at::zeros({2, 3}, at::kDouble).t()), c10::Error,
               "sums", "dense", "[1, 3]");
}

TEST(LaneCrossEntropy, HasTheGradientsOfFiniteDifferences) {
  torch::manual_seed(5);
  for (const Smoothing smoothing : {Smoothing::kNone, Smoothing::kByLane})
    testing::expect_finite_differences(loss_layer(2, 4, 3, smoothing, true));
}

TEST(LaneCrossEntropy, IsZeroForALaneWithoutSamples) {
  at::Tensor labels = at::zeros({3, 4}, at::kLong), mask = at::ones({3, 4}, at::kBool);
  labels[0].fill_(-100);
  mask[1].fill_(false);
  at::Tensor logits = at::randn({3, 4, 5});
  logits[1].fill_(std::numeric_limits<double>::quiet_NaN());
  logits.set_requires_grad(true);
  const at::Tensor loss = lane_cross_entropy(logits, labels, mask, shares(percents(3, Smoothing::kAlike)));
  loss.sum().backward();
  for (const int64_t lane : {0, 1}) {
    EXPECT_EQ(loss[lane].item<float>(), 0);
    EXPECT_TRUE(at::equal(logits.grad()[lane], at::zeros({4, 5})));
  }
  EXPECT_GT(loss[2].item<float>(), 0);
}

TEST(LaneCrossEntropy, NamesTheArgumentThatItRefuses) {
  const at::Tensor logits = at::randn({2, 3, 4}), labels = at::zeros({2, 3}, at::kLong);
  EXPECT_ERROR(lane_cross_entropy(logits[0], labels), c10::Error, "logits", "[L,B,K]", "[3, 4]");
  EXPECT_ERROR(lane_cross_entropy(logits, labels.to(at::kInt)), c10::Error, "labels", "int64", "Int");
  EXPECT_ERROR(lane_cross_entropy(logits, labels.slice(1, 1)), c10::Error, "labels", "[2, 3]", "[2, 2]");
  EXPECT_ERROR(lane_cross_entropy(logits, labels, labels), c10::Error, "mask", "bool", "Long");
  const at::Tensor none = at::zeros({2}, at::kDouble);
  EXPECT_ERROR(lane_cross_entropy(logits, labels, {}, at::tensor({0.5, 1.5}, at::kDouble)), c10::Error,
               "label_smoothing[1]", "0 to 1", "1.5");
  EXPECT_ERROR(lane_cross_entropy(logits, labels, {}, at::zeros({3}, at::kDouble)), c10::Error,
               "label_smoothing", "[2]", "[3]");
  EXPECT_ERROR(lane_cross_entropy(logits, labels, {}, none.to(at::kFloat)), c10::Error, "label_smoothing",
               "Double", "Float");
  EXPECT_ERROR(lane_cross_entropy(logits, labels + 4), c10::Error, "4");  // a label beyond the classes
}

TEST(LaneAccuracy, CountsValidSamplesThatAreRight) {
  const at::Tensor logits = at::eye(3).unsqueeze(0).repeat({2, 1, 1});  // row i says class i
  const at::Tensor labels = at::tensor({0, 1, 0, 0, -100, 2}, at::kLong).view({2, 3});
  at::Tensor mask = at::ones({2, 3}, at::kBool);
  const LaneAccuracy all = lane_accuracy(logits, labels, mask);
  EXPECT_TRUE(at::equal(all.num_correct, at::tensor({2, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(all.num_valid, at::tensor({3, 2}, at::kLong)));
  mask[0][0] = false;
  const LaneAccuracy fewer = lane_accuracy(logits, labels, mask);
  EXPECT_TRUE(at::equal(fewer.num_correct, at::tensor({1, 2}, at::kLong)));
  EXPECT_TRUE(at::equal(fewer.num_valid, at::tensor({2, 2}, at::kLong)));
}

}  // namespace
}  // namespace espalier::lanes
