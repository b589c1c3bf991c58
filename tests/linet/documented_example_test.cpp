// The example of docs/linet.md, as the build cuts it out of there: its includes were made here, and do
// nothing where it stands.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/linet/network.h"

namespace {

TEST(LinetManual, HasAnExampleThatRunsAndGivesWhatItSays) {
  torch::manual_seed(3);
  const at::Tensor rgb = at::randn({1, 4, 3, 40, 40}), depth = at::randn({1, 4, 1, 40, 40});
#include "linet_example.inc"
  EXPECT_EQ(out.logits.sizes(), (std::vector<int64_t>{1, 4, 10}));
  EXPECT_EQ(alone.sizes(), (std::vector<int64_t>{1, 4, 128}));
  const at::Tensor all = net.forward({rgb, depth}, {.mode = lanes::Mode::kEvaluate}).features;
  EXPECT_TRUE(at::allclose(alone[0], all[1], 1e-4, 1e-5));
}

}  // namespace
