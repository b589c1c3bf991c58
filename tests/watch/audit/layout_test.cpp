#include "espalier/watch/audit/layout.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <stdexcept>

#include "espalier/core/error.h"
#include "espalier/tensor/layout.h"
#include "tests/support/message.h"

namespace espalier::watch {
namespace {

using Step = std::function<void()>;

LayoutReport audit(const Step& step, int steps = 2) {
  return audit_layout(at::kCPU, steps, step);
}

at::Tensor images(MemoryFormat format) {
  return empty_images({2, 3, 6, 5}, format, at::kFloat).fill_(1);
}

const OpUse* find_op(const LayoutReport& report, const std::string& name) {
  const auto found = std::ranges::find(report.ops, name, &OpUse::op);
  return found == report.ops.end() ? nullptr : &*found;
}

int64_t inputs(const OpUse& use, LayoutKind kind) {
  return use.inputs[static_cast<size_t>(kind)];
}

struct Network {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(3, 8, 3).padding(1).bias(false)};
  torch::nn::BatchNorm2d norm{8};
  torch::nn::Linear head{8, 4};
  at::Tensor x = images(MemoryFormat::kChannelsLast);
  at::Tensor y = at::zeros({2}, at::kLong);

  Network() { conv->weight.set_data(conv->weight.contiguous(at::MemoryFormat::ChannelsLast)); }

  void train(const std::function<at::Tensor(const at::Tensor&)>& between) {
    at::Tensor h;
    {
      RECORD_USER_SCOPE("block 0");
      h = between(torch::relu(norm(conv(x))));
      h = torch::max_pool2d(h, 2);
    }
    RECORD_USER_SCOPE("head");
    torch::nn::functional::cross_entropy(head(h.mean({2, 3})), y).backward();
  }
};

// Frozen weights: ATen's own convolution on the CPU lays the gradient of a channels-last weight out as
// contiguous and converts it.
TEST(LayoutAudit, FindsNothingInASteadyChannelsLastLoop) {
  Network network;
  network.conv->weight.set_requires_grad(false);
  const at::Tensor x = network.x.requires_grad_();
  const Step step = [&] {
    RECORD_USER_SCOPE("block 0");
    torch::relu(network.norm(network.conv(x))).square().sum().backward();
  };
  step();
  const LayoutReport report = audit(step, 3);
  EXPECT_EQ(report.num_conversions(), 0) << report.text();
  EXPECT_TRUE(report.mixed_inputs.empty()) << report.text();
  EXPECT_EQ(report.steps, 3);
  const OpUse* conv = find_op(report, "aten::convolution");
  ASSERT_NE(conv, nullptr) << report.text();
  EXPECT_EQ(conv->calls, 3);
  EXPECT_EQ(inputs(*conv, LayoutKind::kChannelsLast), 6) << "x and the weight, three times";
  ASSERT_NE(find_op(report, "aten::convolution_backward"), nullptr) << "autograd's work is seen too";
}

TEST(LayoutAudit, SeesWhatAnOpConvertsInside) {
  Network network;
  const LayoutReport report = audit([&] { network.train([](const at::Tensor& h) { return h; }); });
  const auto found = std::ranges::find(report.conversions, "aten::convolution_backward", &Conversion::inside);
  ASSERT_NE(found, report.conversions.end()) << report.text();
  EXPECT_EQ(found->place, "backward of block 0");
  EXPECT_EQ(found->op, "aten::to");
  EXPECT_EQ(found->sizes, "[8,3,3,3]");
}

TEST(LayoutAudit, FindsADeliberateContiguousInItsRange) {
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  const LayoutReport report = audit([&] {
    RECORD_USER_SCOPE("outer");
    {
      RECORD_USER_SCOPE("the culprit");
      x.contiguous();
    }
  });
  ASSERT_EQ(report.conversions.size(), 1U) << report.text();
  const Conversion& one = report.conversions[0];
  EXPECT_EQ(one.place, "the culprit");
  EXPECT_EQ(one.op, "aten::contiguous");
  EXPECT_EQ(one.inside, "");
  EXPECT_EQ(one.sizes, "[2,3,6,5]");
  EXPECT_EQ(one.from, "channels-last");
  EXPECT_EQ(one.to, "contiguous");
  EXPECT_EQ(one.times, 2);
  EXPECT_EQ(report.num_conversions(), 2);
}

TEST(LayoutAudit, CountsAContiguousThatOnlyClosesGaps) {
  const at::Tensor lanes = empty_stacked({2, 2, 3, 6, 5}, MemoryFormat::kContiguous, at::kFloat);
  EXPECT_EQ(audit([&] { lanes.contiguous(); }).num_conversions(), 2);
  EXPECT_EQ(audit([&] { lanes.select(0, 1).contiguous(); }).num_conversions(), 0) << "it had nothing to copy";
}

TEST(LayoutAudit, FindsAPermutedCopyAndNamesWhatCopied) {
  const at::Tensor from = images(MemoryFormat::kContiguous);
  at::Tensor to = images(MemoryFormat::kChannelsLast);
  const LayoutReport report = audit([&] {
    RECORD_USER_SCOPE("copies");
    to.copy_(from);
    from.permute({0, 2, 3, 1}).clone(at::MemoryFormat::Contiguous);
    from.permute({0, 2, 3, 1}).reshape({-1, 3});
    from.to(at::kDouble, /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::ChannelsLast);
  });
  EXPECT_EQ(report.num_conversions(), 8) << report.text();
  std::vector<std::string> ops;
  for (const Conversion& one : report.conversions) {
    EXPECT_EQ(one.place, "copies");
    ops.push_back(one.op);
  }
  std::ranges::sort(ops);
  EXPECT_EQ(ops, (std::vector<std::string>{"aten::clone", "aten::copy_", "aten::reshape", "aten::to"}));
}

TEST(LayoutAudit, LeavesCopiesBetweenEqualLayoutsAlone) {
  const at::Tensor from = images(MemoryFormat::kChannelsLast);
  at::Tensor to = images(MemoryFormat::kChannelsLast);
  at::Tensor lanes = empty_stacked({2, 2, 3, 6, 5}, MemoryFormat::kChannelsLast, at::kFloat).fill_(0);
  const at::Tensor shift = at::ones({3, 1, 1});
  const LayoutReport report = audit([&] {
    to.copy_(from);
    from.clone();
    from.to(at::kDouble);
    lanes.select(0, 1).copy_(from);  // a lane of a stack with gaps
    lanes.clone();
    to.copy_(shift);
  });
  EXPECT_EQ(report.num_conversions(), 0) << report.text();
  EXPECT_GE(find_op(report, "aten::copy_")->calls, 12);
}

TEST(LayoutAudit, FindsACatOnceAndNamesWhoCalledIt) {
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  const LayoutReport report = audit([&] {
    RECORD_USER_SCOPE("packing");
    at::cat({x, x}, 1);
    at::stack({x, x});
  });
  EXPECT_EQ(report.num_conversions(), 4) << report.text();
  ASSERT_EQ(report.conversions.size(), 2U) << report.text();
  for (const Conversion& one : report.conversions) {
    EXPECT_EQ(one.place, "packing");
    EXPECT_EQ(one.from, "channels-last");
    EXPECT_EQ(one.sizes, "[2,3,6,5]");
  }
  EXPECT_EQ(report.conversions[0].op, "aten::cat");
  EXPECT_EQ(report.conversions[1].op, "aten::stack");
}

TEST(LayoutAudit, NamesTheForwardRangeOfWhatTheBackwardPassConverts) {
  Network network;
  const auto to_rows = [](const at::Tensor& h) { return h.contiguous(); };
  const LayoutReport report = audit([&] { network.train(to_rows); });
  EXPECT_GT(report.num_conversions(), 0);
  bool forward = false, backward = false;
  for (const Conversion& one : report.conversions) {
    forward = forward || (one.place == "block 0" && one.op == "aten::contiguous" && one.inside.empty());
    backward = backward || one.place == "backward of block 0";
  }
  EXPECT_TRUE(forward && backward) << report.text();
}

TEST(LayoutAudit, RecognisesStackedLanesWithGaps) {
  const at::Tensor lanes = empty_stacked({3, 2, 3, 6, 5}, MemoryFormat::kChannelsLast, at::kFloat).fill_(1);
  ASSERT_GT(lanes.stride(0), 2 * 3 * 6 * 5);
  const LayoutReport report = audit([&] { at::mul(lanes, lanes); }, 1);
  ASSERT_NE(find_op(report, "aten::mul"), nullptr);
  EXPECT_EQ(inputs(*find_op(report, "aten::mul"), LayoutKind::kStackedChannelsLast), 2) << report.text();
  EXPECT_EQ(report.num_conversions(), 0);
}

TEST(LayoutAudit, TellsOfOpsThatReadTwoLayouts) {
  const at::Tensor last = images(MemoryFormat::kChannelsLast), first = images(MemoryFormat::kContiguous);
  const LayoutReport report = audit([&] {
    RECORD_USER_SCOPE("sum");
    at::add(last, first);
  });
  EXPECT_EQ(report.num_conversions(), 0);
  ASSERT_EQ(report.mixed_inputs.size(), 1U) << report.text();
  EXPECT_EQ(report.mixed_inputs[0].op, "aten::add");
  EXPECT_EQ(report.mixed_inputs[0].place, "sum");
  EXPECT_EQ(report.mixed_inputs[0].times, 2);
}

TEST(LayoutAudit, PrintsTables) {
  const at::Tensor x = images(MemoryFormat::kChannelsLast);
  const std::string text = audit([&] {
                             RECORD_USER_SCOPE("the culprit");
                             x.contiguous();
                           }).text();
  testing::expect_parts(text, {"layout: 2 step(s) on cpu, 2 conversion(s)", "the culprit", "aten::contiguous",
                               "[2,3,6,5]", "channels-last  contiguous", "aten::copy_"});
}

TEST(LayoutAudit, TakesNoMoreCopiesOfAReplayForConversionsThanOpsHadExplained) {
  const auto report = [](std::vector<KernelUse> kernels) {
    LayoutReport made;
    made.kernels = std::move(kernels);
    return made;
  };
  const KernelUse copy{.kernel = "direct_copy", .op = "aten::copy_", .times = 3};
  const KernelUse replayed{.kernel = "direct_copy", .op = kGraphReplay, .is_behind_an_op = true, .times = 3};
  const KernelUse reformat{
      .kernel = "nchwToNhwc", .kind = KernelKind::kReformat, .is_behind_an_op = true, .times = 2};
  EXPECT_EQ(replayed_conversions(report({replayed}), report({copy})), 0);
  EXPECT_EQ(replayed_conversions(report({replayed}), report({})), 3);
  EXPECT_EQ(replayed_conversions(report({replayed, reformat}), report({copy})), 2);
  EXPECT_EQ(replayed_conversions(report({}), report({copy})), 0) << "a copy less is no conversion less";
}

TEST(LayoutAudit, LetsAStepsErrorPassAndStopsRecording) {
  const Step failing = [] { throw std::runtime_error("no such batch"); };
  EXPECT_ERROR(audit(failing), std::runtime_error, "no such batch");
  EXPECT_EQ(audit([] { at::zeros({1}).add_(1); }).num_conversions(), 0) << "a second audit runs";
}

TEST(LayoutAudit, RefusesToRunWithoutStepsOrInsideAnother) {
  EXPECT_ERROR(audit([] {}, 0), UsageError, "audit_layout: steps", "at least 1", "got 0");
  EXPECT_ERROR(audit([] { audit([] {}); }), Error, "audit_layout", "running on this thread already");
}

}  // namespace
}  // namespace espalier::watch
