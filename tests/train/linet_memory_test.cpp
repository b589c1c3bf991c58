#include "espalier/train/linet_memory.h"

#include <gtest/gtest.h>

#include "espalier/train/linet_trainer.h"
#include "tests/train/small_linet.h"

namespace espalier::train {
namespace {

int64_t bytes_of(const MemoryPlan& plan, const std::string& what) {
  for (const MemoryPart& part : plan.parts)
    if (part.what.starts_with(what)) return part.bytes;
  return -1;
}

TEST(LinetMemory, CountsTheParametersThatTheNetworkHas) {
  const auto dataset = testing::small_streams();
  std::vector<data::FieldSpec> fields;
  for (const data::ResidentField& field : dataset->train.fields) fields.push_back(field.spec);
  for (const char* model : {"li_resnet18", "li_resnet50"}) {
    LinetOptions options = testing::small_linet_options();
    options.model = model;
    options.streams = "depth,orth";  // of one number of channels: the stem is then counted exactly
    linet::Linet net(linet_shape(options, fields, 10, at::kCPU), at::kFloat, at::kFloat);
    // The stem has no previous state; the plan counts one.
    const int64_t more = net.shape().widths[0] * net.shape().in_channels[0];
    const MemoryPlan plan = linet_parts(options, 123, fields, 10, at::kCPU);
    EXPECT_EQ(bytes_of(plan, "weights"), (net.num_parameters() + more) * 16) << model;
    EXPECT_EQ(bytes_of(plan, "data"), 123);
  }
}

TEST(LinetMemory, GrowsWithTheBatch) {
  const auto dataset = testing::small_streams();
  std::vector<data::FieldSpec> fields;
  for (const data::ResidentField& field : dataset->train.fields) fields.push_back(field.spec);
  LinetOptions options = testing::small_linet_options();
  const int64_t once = bytes_of(linet_parts(options, 0, fields, 10, at::kCPU), "activations");
  options.batch *= 2;
  EXPECT_EQ(bytes_of(linet_parts(options, 0, fields, 10, at::kCPU), "activations"), 2 * once);
  options.amp = "bfloat16";
  EXPECT_EQ(bytes_of(linet_parts(options, 0, fields, 10, at::kCPU), "activations"), once);
}

}  // namespace
}  // namespace espalier::train
