#include "espalier/train/memory/linet.h"

#include <gtest/gtest.h>

#include <set>

#include "espalier/data/ring.h"
#include "espalier/tensor/device.h"
#include "espalier/train/linet/trainer.h"
#include "espalier/train/population/setup.h"
#include "tests/train/linet/small_linet.h"

namespace espalier::train {
namespace {

int64_t bytes_of(const MemoryPlan& plan, const std::string& what) {
  for (const MemoryPart& part : plan.parts)
    if (part.what == what) return part.bytes;
  return -1;
}

LinetNeeds small_needs(const LinetConfig& options) {
  const auto dataset = testing::small_streams();
  return {.options = options,
          .fields = specs_of(dataset->train),
          .num_classes = 10,
          .data = {.bytes = 123},
          .device = at::kCPU};
}

int64_t storage_of(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.storage().nbytes());
}

// Values, gradients, and the copies that layers compute with.
int64_t bytes_of(const lanes::LaneParameter& parameter) {
  const bool has_copy = parameter.compute().scalar_type() != parameter.value().scalar_type();
  return 2 * storage_of(parameter.storage()) + (has_copy ? storage_of(parameter.compute()) : 0);
}

using Names = std::vector<std::string>;

TEST(LinetMemory, CountsWeightsAndOptimiserToTheByte) {
  for (const char* model : {"li_resnet18", "li_resnet50"})
    for (const Names& streams : {Names{"rgb", "depth", "orth"}, Names{"depth", "orth"}})
      for (const Precision precision : {Precision::kFp32, Precision::kBf16})
        for (const OptimizerKind optimizer : {OptimizerKind::kAdamW, OptimizerKind::kSgd}) {
          SCOPED_TRACE(fmt::format("{}, {} streams, precision {}, optimiser {}", model, streams.size(),
                                   static_cast<int>(precision), static_cast<int>(optimizer)));
          LinetConfig options = testing::small_linet_options();
          options.model = model;
          options.streams = streams;
          options.precision = precision;
          options.optimizer = optimizer;
          const LinetNeeds needs = small_needs(options);
          const linet::LinetShape shape = linet_shape(options, needs.fields, 10, at::kCPU);
          const at::TensorOptions tensors(at::kFloat);
          linet::Linet net(shape, tensors, precision_type(precision, at::kCPU));
          linet::StreamMonitor monitor(shape, tensors);
          int64_t weights = 0, state = 0;
          for (const lanes::NamedParameter& named : net.parameters()) weights += bytes_of(*named.parameter);
          for (const lanes::NamedParameter& named : monitor.parameters())
            weights += bytes_of(*named.parameter);
          for (const auto& [name, buffer] : net.named_buffers())
            if (name != "num_batches") weights += storage_of(buffer);
          const auto add = [&](const lanes::LaneOptimizer& each) {
            for (const at::Tensor& tensor : each.state()) state += storage_of(tensor);
            state +=
                storage_of(each.learning_rates) + storage_of(each.weight_decays) + storage_of(each.frozen);
            if (const auto* sgd = dynamic_cast<const lanes::LaneSGD*>(&each))
              state += storage_of(sgd->momentum_factors);
          };
          for (const linet::PathGroup& group : net.groups()) {
            if (options.optimizer == OptimizerKind::kSgd)
              add(lanes::LaneSGD(group.parameters, {.momentum = 0.9}));
            else
              add(lanes::LaneAdamW(group.parameters, {}));
          }
          add(lanes::LaneAdamW(lanes::without_names(monitor.parameters()), {}));
          const MemoryPlan plan = linet_parts(needs);
          EXPECT_EQ(bytes_of(plan, "weights and gradients"), weights);
          EXPECT_EQ(bytes_of(plan, "optimiser"), state);
          EXPECT_EQ(bytes_of(plan, "data"), 123);
        }
}

TEST(LinetMemory, CountsTheBestWeightsThatFrozenStreamsGetBack) {
  constexpr const char* kPart = "the best weights of every stream";
  for (const char* model : {"li_resnet18", "li_resnet50"})
    for (const Names& streams : {Names{"rgb", "depth", "orth"}, Names{"depth", "orth"}}) {
      LinetConfig options = testing::small_linet_options();
      options.model = model;
      options.streams = streams;
      linet::Linet net(linet_shape(options, small_needs(options).fields, 10, at::kCPU), at::kFloat,
                       at::kFloat);
      int64_t values = 0;
      for (const linet::StreamTensor& tensor : net.stream_tensors())
        if (tensor.name.find(".streams.") != std::string::npos &&
            !tensor.name.ends_with("num_batches_tracked"))
          values += tensor.value().numel();
      EXPECT_EQ(bytes_of(linet_parts(small_needs(options)), kPart), -1) << "never frozen";
      options.stream_patience = 2;
      EXPECT_EQ(bytes_of(linet_parts(small_needs(options)), kPart), values * 4)
          << model << ", " << streams.size();
      options.rules = linet::LinetRules::kEspalier;
      EXPECT_EQ(bytes_of(linet_parts(small_needs(options)), kPart), -1) << "as they are";
    }
}

TEST(LinetMemory, CountsTheBatchesThatStepsHave) {
  const LinetConfig options = testing::small_linet_options();
  const auto trainer = testing::small_linet(options);
  int64_t bytes = storage_of(trainer->step().batch().labels());
  for (const at::Tensor& images : trainer->step().batch().images()) bytes += storage_of(images);
  const MemoryPlan plan = linet_parts(small_needs(options));
  EXPECT_EQ(bytes_of(plan, "batches of training"), bytes);
  EXPECT_EQ(bytes_of(plan, "batches of validation"), bytes);
}

// On a GPU: three more of each, with labels and masks.
TEST(LinetMemory, CountsBatchesThatAreMadeAheadOfDataInHostMemory) {
  LinetNeeds needs = small_needs(testing::small_linet_options());
  needs.options.precision = Precision::kFp16;
  needs.data.residency = data::Residency::kHost;
  EXPECT_EQ(bytes_of(linet_parts(needs), "batches of training that are made ahead"), -1) << "on the CPU";
  const data::BatchRing::Lease one =
      data::BatchRing(
          {.batch = 10, .image_sizes = {{3, 32, 32}, {1, 32, 32}, {1, 32, 32}}, .type = at::kHalf})
          .acquire(current_stream(at::kCPU));
  int64_t bytes = storage_of(one.buffers().labels) + storage_of(one.buffers().mask);
  for (const at::Tensor& images : one.buffers().fields) bytes += storage_of(images);
  needs.device = at::Device(at::kCUDA, 0);
  const MemoryPlan far = linet_parts(needs);
  EXPECT_EQ(bytes_of(far, "batches of training that are made ahead"), 3 * bytes);
  EXPECT_EQ(bytes_of(far, "batches of validation that are made ahead"), 3 * bytes);
  needs.data.residency = data::Residency::kDevice;
  EXPECT_EQ(linet_parts(needs).total_bytes(), far.total_bytes() - 6 * bytes + needs.data.bytes);
}

// Gradients are sent in flat copies, and a step that waits for others is no graph.
TEST(LinetMemory, CountsWhatRanksSendEachOther) {
  constexpr const char* kSent = "gradients on their way to other ranks";
  LinetNeeds needs = small_needs(testing::small_linet_options());
  needs.device = at::Device(at::kCUDA, 0);
  const linet::LinetShape shape = linet_shape(needs.options, needs.fields, 10, needs.device);
  linet::Linet net(shape, at::kFloat, at::kFloat);
  linet::StreamMonitor monitor(shape, at::kFloat);
  int64_t gradients = 0, statistics = 0;
  for (const lanes::NamedParameter& named : net.parameters())
    gradients += static_cast<int64_t>(named.parameter->value().nbytes());
  for (const lanes::NamedParameter& named : monitor.parameters())
    gradients += static_cast<int64_t>(named.parameter->value().nbytes());
  for (const auto& [name, buffer] : net.named_buffers())
    if (buffer.is_floating_point()) statistics += static_cast<int64_t>(buffer.nbytes());
  EXPECT_EQ(bytes_of(linet_parts(needs), kSent), -1) << "one process";
  EXPECT_GT(bytes_of(linet_parts(needs), "captured graphs of a step"), 0);
  needs.ranks = 4;
  EXPECT_EQ(bytes_of(linet_parts(needs), kSent), gradients + statistics);
  EXPECT_EQ(bytes_of(linet_parts(needs), "captured graphs of a step"), -1);
  needs.options.sync_norm = true;
  EXPECT_EQ(bytes_of(linet_parts(needs), kSent), gradients);
}

TEST(LinetMemory, GrowsWithTheBatchAndTheLossThatBalancesStreams) {
  LinetConfig options = testing::small_linet_options();
  const auto activations = [&] {
    return bytes_of(linet_parts(small_needs(options)), "activations of a step");
  };
  options.batch = 64;
  const int64_t once = activations();
  options.batch = 128;
  EXPECT_NEAR(static_cast<double>(activations()) / static_cast<double>(once), 2, 0.1);
  options.batch = 64;
  options.balance = 1;
  options.balance_layer = BalanceLayer::kLayer4;
  const int64_t last = activations();
  options.balance_layer = BalanceLayer::kAll;
  EXPECT_LT(last, activations());
  options.balance = 0;
  options.precision = Precision::kBf16;
  EXPECT_NEAR(static_cast<double>(activations()) / static_cast<double>(once), 0.5, 0.1);
}

}  // namespace
}  // namespace espalier::train
