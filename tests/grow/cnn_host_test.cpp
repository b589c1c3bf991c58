#include "espalier/grow/cnn_host.h"

#include "espalier/core/error.h"
#include "espalier/lanes/lane_gradients.h"
#include "tests/grow/plain_network.h"
#include "tests/lanes/lane_compare.h"
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

TEST(CnnHost, ComposesOverAnyChainOfBoundaries) {
  for (const auto type : {at::kFloat, at::kDouble}) {
    CnnHost host(small_host(), type, type);
    const at::Tensor x = images(small_host(), 4, type);
    const HostContext context{.mode = lanes::Mode::kTrain};
    const at::Tensor want = host.forward(x, context).detach();
    const std::vector<SlotSpec> order = slots_by_execution(small_host());
    for (uint32_t chosen = 0; chosen < (1u << order.size()); ++chosen) {
      at::Tensor h = x;
      std::string at(kHostInput);
      for (size_t i = 0; i < order.size(); ++i) {
        if ((chosen >> i & 1) == 0) continue;
        h = host.forward_to_segment(order[i].name, h, at, context);
        EXPECT_EQ(h.sizes().slice(2), (c10::IntArrayRef{order[i].channels, order[i].height, order[i].width}));
        at = order[i].name;
      }
      h = at == kHostInput ? host.forward(h, context) : host.forward_from_segment(at, h, context);
      expect_same_bits(h.detach(), want, "chain " + std::to_string(chosen));
    }
  }
}

TEST(CnnHost, RefusesUnknownSlotsAndBackwardRoutes) {
  CnnHost host(small_host(), at::kFloat, at::kFloat);
  const at::Tensor x = images(small_host(), 2, at::kFloat);
  EXPECT_ERROR(host.forward_to_segment("r9c9", x), UsageError, "'r9c9'", "r0c0, r0c1, r0c2, r1c0, r1c1");
  EXPECT_ERROR(host.forward_from_segment("", x), UsageError, "r0c0");
  EXPECT_ERROR(host.forward_to_segment("r0c1", x, "r1c7"), UsageError, "'r1c7'");
  const at::Tensor h = host.forward_to_segment("r0c1", x);
  EXPECT_ERROR(host.forward_to_segment("r1c0", h, "r0c1"), UsageError, "from r0c1 to r1c0 is backwards",
               "r0c1, r1c1, r0c2");
  EXPECT_TRUE(host.forward_to_segment("r0c1", h, "r0c1").is_same(h));
}

TEST(CnnHost, HasADoorAtEverySegment) {
  CnnHost host(small_host(), at::kFloat, at::kFloat);
  const at::Tensor x = images(small_host(), 2, at::kFloat);
  const at::Tensor h = host.forward_to_segment("r1c0", x).detach();
  host.forward(x);
  host.forward_from_segment("r1c0", h);
  host.forward_to_segment("r0c2", h, "r1c0");
  EXPECT_EQ(host.door_conversions(), 0);
  const at::Tensor foreign = h.contiguous();
  const at::Tensor want = host.forward_from_segment("r1c0", h).detach();
  expect_same_bits(host.forward_from_segment("r1c0", foreign).detach(), want, "foreign layout");
  EXPECT_EQ(host.door_conversions(), 1);
  host.forward_to_segment("r0c2", foreign, "r1c0");
  host.forward(x.contiguous());
  EXPECT_EQ(host.door_conversions(), 3);
  EXPECT_ERROR(host.forward_from_segment("r0c2", h), UsageError, "[3,B,16,2,2]");
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

TEST(CnnHost, InitialisesOneLaneAndLeavesTheOthers) {
  CnnHost host(small_host(), at::kFloat, at::kBFloat16), fresh(small_host(), at::kFloat, at::kBFloat16);
  host.forward(images(small_host(), 4, at::kBFloat16));
  for (const auto& named : host.parameters()) named.parameter->storage().add_(1);
  host.initialise_lane(1, small_host().seed);
  for (size_t i = 0; i < host.parameters().size(); ++i) {
    const auto &got = *host.parameters()[i].parameter, &born = *fresh.parameters()[i].parameter;
    expect_same_bits(got.storage().select(0, 1), born.storage().select(0, 1), host.parameters()[i].name);
    expect_same_bits(got.compute().select(0, 1), born.compute().select(0, 1), host.parameters()[i].name);
    expect_same_bits(got.storage().select(0, 2), born.storage().select(0, 2) + 1, host.parameters()[i].name);
  }
  EXPECT_EQ(largest(host.buffers()[0].tensor.select(0, 1)), 0);
  EXPECT_GT(largest(host.buffers()[0].tensor.select(0, 2)), 0);
}

TEST(CnnHost, AnswersInTheMastersTypeWhateverItComputesIn) {
  CnnHost host(small_host(), at::kFloat, at::kBFloat16);
  const at::Tensor logits = host.forward(images(small_host(), 4, at::kBFloat16));
  EXPECT_EQ(logits.scalar_type(), at::kFloat);
  EXPECT_EQ(host.door_conversions(), 0);
  EXPECT_EQ(host.forward_to_segment("r0c1", images(small_host(), 4, at::kBFloat16)).scalar_type(),
            at::kBFloat16);
}

TEST(CnnHost, SwitchesItsMemoryFormatAndBack) {
  CnnHost host(small_host(), at::kDouble, at::kDouble);
  const at::Tensor x = images(small_host(), 4, at::kDouble);
  const HostContext context{.mode = lanes::Mode::kEvaluate};
  const at::Tensor want = host.forward(x, context).detach();
  host.set_memory_format(MemoryFormat::kContiguous);
  for (const auto& named : host.parameters())
    if (named.name.find("conv") != std::string::npos) {
      EXPECT_EQ(lanes::format_of(named.parameter->value()), MemoryFormat::kContiguous) << named.name;
    }
  EXPECT_EQ(lanes::format_of(host.forward_to_segment("r0c1", x, kHostInput, context)),
            MemoryFormat::kContiguous);
  EXPECT_EQ(host.door_conversions(), 1);
  expect_close(host.forward(x.contiguous(), context).detach(), want, "contiguous");
  EXPECT_EQ(host.door_conversions(), 1);
  host.set_memory_format(MemoryFormat::kChannelsLast);
  expect_same_bits(host.forward(x, context).detach(), want, "and back");
}

TEST(CnnHost, RefusesOptionsNoHostCanHave) {
  CnnHostOptions options = small_host();
  options.pool_layers = 3;
  options.width = 4;
  EXPECT_ERROR(CnnHost(options, at::kFloat, at::kFloat), UsageError, "pool_layers", "below 1 x 1");
}

}  // namespace
}  // namespace espalier::grow
