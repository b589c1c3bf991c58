#include "espalier/grow/host/interface.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "espalier/lanes.h"
#include "tests/lanes/compare.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

// Layers of every kind; another name for one parameter where told so.
class EveryLayer final : public Host {
 public:
  explicit EveryLayer(const HostBuild& build, bool has_unknown = false)
      : Host(build, {}),
        conv_({build.frame.lanes, 3, 4, 3, {.padding = 1}, /*has_bias=*/true}, build.options, build.compute),
        batch_(build.frame.lanes, 4, build.options),
        group_(build.frame.lanes, 2, 4, build.options),
        linear_({build.frame.lanes, 4, 5}, build.options),
        has_unknown_(has_unknown) {
    add("conv", conv_);
    add("batch", batch_);
    add("group", group_);
    add("linear", linear_);
    for (const auto& named : parameters()) named.parameter->storage().fill_(7);
    for (const Buffer& buffer : buffers()) buffer.tensor.fill_(7);
    initialise(build.frame.seed);
  }
  at::Tensor forward(const at::Tensor& x, const HostContext& /*context*/) override { return x; }
  std::vector<lanes::NamedParameter> parameters() override {
    auto named = Host::parameters();
    if (has_unknown_) named.push_back({"linear.scale", &linear_.bias});
    return named;
  }

 private:
  lanes::LaneConv2d conv_;
  lanes::LaneBatchNorm2d batch_;
  lanes::LaneGroupNorm group_;
  lanes::LaneLinear linear_;
  bool has_unknown_;
};

HostBuild two_lanes() {
  return {.frame = {.lanes = 2, .seed = 4, .lane_ids = {0, 9}}, .options = at::TensorOptions(at::kFloat)};
}

TEST(Host, BeginsAsTorchDoesUnlessItSaysOtherwise) {
  EveryLayer host(two_lanes());
  std::map<std::string, at::Tensor> values;
  for (const auto& named : host.parameters()) values[named.name] = named.parameter->storage();
  for (const Host::Buffer& buffer : host.buffers()) values[buffer.name] = buffer.tensor;
  EXPECT_EQ(values.size(), 10u);
  for (const char* ones : {"batch.weight", "group.weight", "batch.running_var"})
    EXPECT_TRUE(values.at(ones).eq(1).all().item<bool>()) << ones;
  for (const char* zeros : {"batch.bias", "group.bias", "batch.running_mean"})
    EXPECT_TRUE(values.at(zeros).eq(0).all().item<bool>()) << zeros;
  for (const auto& [name, fan_in] :
       {std::pair{"conv.weight", 27}, {"conv.bias", 27}, {"linear.weight", 4}, {"linear.bias", 4}})
    for (const int64_t lane : {0, 1}) {
      const at::Tensor got = values.at(name).narrow(0, lane, 1);
      const at::Tensor want = got.clone();
      lanes::init_uniform_(want, 1 / std::sqrt(static_cast<double>(fan_in)), {4, name, lane == 0 ? 0 : 9});
      lanes::testing::expect_same_bits(got, want, name);
    }
}

TEST(Host, RefusesAParameterWhoseFirstValuesItDoesNotKnow) {
  EXPECT_ERROR(EveryLayer(two_lanes(), true), Error, "linear.scale", "write_first_values()");
}

}  // namespace
}  // namespace espalier::grow
