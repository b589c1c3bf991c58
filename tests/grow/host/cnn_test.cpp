#include "espalier/grow/host/cnn.h"

#include "espalier/core/error.h"
#include "espalier/lanes/optim/gradients.h"
#include "tests/grow/plain_network.h"
#include "tests/lanes/compare.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using lanes::testing::distance;
using lanes::testing::expect_same_bits;
using lanes::testing::largest;
using lanes::testing::random_lanes;
using lanes::testing::random_mask;
using lanes::testing::stacked_copy;
using testing::PlainNetwork;

CnnHostOptions small_host(int64_t lanes = 3) {
  return {.lanes = lanes,
          .in_channels = 3,
          .height = 9,
          .width = 8,
          .num_classes = 5,
          .n_blocks = 3,
          .base_channels = 4,
          .pool_layers = 2,
          .seed = 11};
}

at::Tensor images(const CnnHostOptions& options, int64_t batch, at::ScalarType type) {
  torch::manual_seed(5);
  return stacked_copy(
      random_lanes({options.lanes, batch, options.in_channels, options.height, options.width}), type);
}

PlainNetwork plain_lane(CnnHost& host, int64_t lane) {
  PlainNetwork network{.options = host.options()};
  for (const auto& named : host.parameters())
    network.values["host." + named.name] =
        named.parameter->storage().select(0, lane).clone().set_requires_grad(true);
  for (const auto& buffer : host.buffers())
    network.values["host." + buffer.name] = buffer.tensor.select(0, lane).clone();
  return network;
}

void expect_close(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  ASSERT_EQ(got.sizes(), want.sizes()) << what;
  EXPECT_LE(distance(got, want), 1e-9 * std::max(largest(want), 1e-30)) << what;
}

// Outputs, running statistics and the gradients of all parameters.
void expect_equals_torch(const CnnHostOptions& options, lanes::Mode mode) {
  CnnHost host(options, at::kDouble, at::kDouble);
  if (mode == lanes::Mode::kEvaluate)
    for (const auto& buffer : host.buffers()) buffer.tensor.copy_(at::rand(buffer.tensor.sizes()) + 0.5);
  std::vector<PlainNetwork> plain;
  for (int64_t lane = 0; lane < options.lanes; ++lane) plain.push_back(plain_lane(host, lane));
  const at::Tensor x = images(options, 6, at::kDouble);
  const at::Tensor weights = at::randn({options.lanes, 6, options.num_classes}, at::kDouble);

  const at::Tensor logits = host.forward(x, {.mode = mode});
  lanes::lane_backward((logits * weights).sum({1, 2}), lanes::without_names(host.parameters()));
  for (int64_t lane = 0; lane < options.lanes; ++lane) {
    PlainNetwork& network = plain[static_cast<size_t>(lane)];
    network.trains = mode == lanes::Mode::kTrain;
    const at::Tensor want = network.forward(x.select(0, lane));
    expect_close(logits.detach().select(0, lane), want.detach(), "logits");
    (want * weights.select(0, lane)).sum().backward();
    for (const auto& named : host.parameters())
      expect_close(named.parameter->gradient().select(0, lane), network.values["host." + named.name].grad(),
                   named.name);
    for (const auto& buffer : host.buffers())
      expect_close(buffer.tensor.select(0, lane), network.values["host." + buffer.name], buffer.name);
  }
}

TEST(CnnHost, EqualsPlainTorchLaneByLane) {
  for (const auto mode : {lanes::Mode::kTrain, lanes::Mode::kEvaluate}) {
    expect_equals_torch(small_host(), mode);
    expect_equals_torch({.lanes = 2, .n_blocks = 2, .base_channels = 6, .kernel_size = 5}, mode);
    expect_equals_torch({.lanes = 2, .height = 5, .width = 6, .base_channels = 3, .pool_layers = 0}, mode);
    CnnHostOptions contiguous = small_host();
    contiguous.memory_format = MemoryFormat::kContiguous;
    expect_equals_torch(contiguous, mode);
  }
}

TEST(CnnHost, LeavesMaskedSamplesOut) {
  CnnHost host(small_host(), at::kFloat, at::kFloat), same(small_host(), at::kFloat, at::kFloat);
  const at::Tensor x = images(small_host(), 5, at::kFloat), other = x.clone(c10::MemoryFormat::Preserve);
  const at::Tensor mask = random_mask(3, 5, 2);
  mask.select(1, 4).fill_(false);
  const at::Tensor broken = stacked_copy(x, at::kFloat);
  broken.select(1, 4).fill_(std::numeric_limits<double>::quiet_NaN());
  const at::Tensor got = host.forward(broken, {.mask = mask}), want = same.forward(x, {.mask = mask});
  expect_same_bits(got.detach().slice(1, 0, 4), want.detach().slice(1, 0, 4), "logits");
  for (size_t i = 0; i < host.buffers().size(); ++i)
    expect_same_bits(host.buffers()[i].tensor, same.buffers()[i].tensor, host.buffers()[i].name);
}

TEST(CnnHost, RefusesUnknownSlots) {
  CnnHost host(small_host(), at::kFloat, at::kFloat);
  EXPECT_ERROR(host.slot_index("r9c9"), UsageError, "'r9c9'", "r0c0, r0c1, r0c2, r1c0, r1c1");
  EXPECT_ERROR(host.slot_index(""), UsageError, "r0c0");
}

TEST(CnnHost, ConvertsAForeignLayoutAtItsEntryAlone) {
  CnnHost host(small_host(), at::kFloat, at::kFloat);
  const at::Tensor x = images(small_host(), 2, at::kFloat);
  const at::Tensor want = host.forward(x).detach();
  EXPECT_EQ(host.entry_conversions(), 0);
  expect_same_bits(host.forward(x.contiguous()).detach(), want, "foreign layout");
  EXPECT_EQ(host.entry_conversions(), 1);
  EXPECT_ERROR(host.forward(x.narrow(3, 0, 1)), UsageError, "host: x");
}

TEST(CnnHost, GivesALaneTheSameValuesAmongManyAndAlone) {
  CnnHost few(small_host(8), at::kFloat, at::kFloat), many(small_host(128), at::kFloat, at::kFloat);
  for (size_t i = 0; i < few.parameters().size(); ++i) {
    const at::Tensor a = few.parameters()[i].parameter->storage(),
                     b = many.parameters()[i].parameter->storage();
    expect_same_bits(a.select(0, 3), b.select(0, 3), few.parameters()[i].name);
    if (few.parameters()[i].name.find("norm") == std::string::npos) {
      EXPECT_FALSE(at::equal(a.select(0, 3), a.select(0, 4))) << few.parameters()[i].name;
    }
  }
  CnnHostOptions other = small_host(8);
  other.seed = 12;
  EXPECT_FALSE(at::equal(CnnHost(other, at::kFloat, at::kFloat).parameters()[0].parameter->storage(),
                         few.parameters()[0].parameter->storage()));
}

TEST(CnnHost, BeginsWithinTorchsBounds) {
  CnnHost host(small_host(), at::kFloat, at::kFloat);
  for (const auto& named : host.parameters()) {
    const at::Tensor values = named.parameter->storage();
    if (named.name == "block1.norm.weight") {
      EXPECT_TRUE(at::equal(values, at::ones_like(values)));
    }
    if (named.name == "block1.norm.bias") {
      EXPECT_EQ(largest(values), 0);
    }
    if (named.name == "block1.conv.weight") {  // 4 channels x 3 x 3
      EXPECT_LT(largest(values), 1.0 / 6);
      EXPECT_GT(largest(values), 0.9 / 6);
    }
    if (named.name == "classifier.bias") {  // 16 features
      EXPECT_LT(largest(values), 1.0 / 4);
      EXPECT_GT(largest(values), 0);
    }
  }
}

TEST(CnnHost, BeginsAnewAsItWasBorn) {
  CnnHost host(small_host(), at::kFloat, at::kBFloat16), fresh(small_host(), at::kFloat, at::kBFloat16);
  host.forward(images(small_host(), 4, at::kBFloat16));
  for (const auto& named : host.parameters()) named.parameter->storage().add_(1);
  EXPECT_GT(largest(host.buffers()[0].tensor), 0);
  host.initialise(small_host().seed);
  for (size_t i = 0; i < host.parameters().size(); ++i) {
    const auto &got = *host.parameters()[i].parameter, &born = *fresh.parameters()[i].parameter;
    expect_same_bits(got.storage(), born.storage(), host.parameters()[i].name);
    expect_same_bits(got.compute(), born.compute(), host.parameters()[i].name);
  }
  for (size_t i = 0; i < host.buffers().size(); ++i)
    expect_same_bits(host.buffers()[i].tensor, fresh.buffers()[i].tensor, host.buffers()[i].name);
}

TEST(CnnHost, AnswersInTheMastersTypeWhateverItComputesIn) {
  CnnHost host(small_host(), at::kFloat, at::kBFloat16);
  const at::Tensor logits = host.forward(images(small_host(), 4, at::kBFloat16));
  EXPECT_EQ(logits.scalar_type(), at::kFloat);
  EXPECT_EQ(host.entry_conversions(), 0);
}

TEST(CnnHost, ComputesTheSameInEitherMemoryFormat) {
  const HostContext context{.mode = lanes::Mode::kEvaluate};
  CnnHost host(small_host(), at::kDouble, at::kDouble);
  CnnHostOptions options = small_host();
  options.memory_format = MemoryFormat::kContiguous;
  CnnHost planes(options, at::kDouble, at::kDouble);
  const at::Tensor x = images(small_host(), 4, at::kDouble);
  for (const auto& named : planes.parameters())
    if (named.name.find("conv") != std::string::npos) {
      EXPECT_EQ(lanes::format_of(named.parameter->value()), MemoryFormat::kContiguous) << named.name;
    }
  expect_close(planes.forward(x, context).detach(), host.forward(x, context).detach(), "converted");
  EXPECT_EQ(planes.entry_conversions(), 1);
  expect_close(planes.forward(x.contiguous(), context).detach(), host.forward(x, context).detach(),
               "contiguous");
  EXPECT_EQ(planes.entry_conversions(), 1);
}

TEST(CnnHost, RefusesOptionsNoHostCanHave) {
  CnnHostOptions options = small_host();
  options.pool_layers = 3;
  options.width = 4;
  EXPECT_ERROR(CnnHost(options, at::kFloat, at::kFloat), UsageError, "pool_layers", "below 1 x 1");
}

}  // namespace
}  // namespace espalier::grow
