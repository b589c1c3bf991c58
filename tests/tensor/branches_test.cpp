#include "espalier/tensor/branches.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>
#include <numeric>

#include "espalier/tensor/captured_graphs.h"
#include "tests/support/cuda.h"

namespace espalier {
namespace {

using Tensors = std::vector<at::Tensor>;

constexpr int64_t kCounts[] = {1, 2, 3, Branches::kMost, Branches::kMost + 1, 2 * Branches::kMost + 3};
constexpr int64_t kValues = 1 << 19;  // enough that a branch is still busy when the next one begins

TEST(Branches, RunInTheirOrderOnTheCpu) {
  for (const int64_t count : kCounts) {
    std::vector<int64_t> order;
    Branches branches(at::kCPU, count);
    for (int64_t i = 0; i < count; ++i) {
      branches.run(at::ones({1}), [&] { order.push_back(i); });
      EXPECT_EQ(std::ssize(order), i + 1) << "a body has run when run() returns";
    }
    branches.join();
    std::vector<int64_t> want(static_cast<size_t>(count));
    std::iota(want.begin(), want.end(), 0);
    EXPECT_EQ(order, want);
  }
}

// What a branch does: operations that give the same bits on every stream.
at::Tensor work(const at::Tensor& input, int64_t branch) {
  at::Tensor y = input;
  for (int i = 0; i < 8; ++i) y = (y * (1 + 0.05 * static_cast<double>(branch))).sin() + y.roll(1, 0);
  return y;
}

// Work of the caller's stream whose result every branch needs.
Tensors inputs_from(const at::Tensor& x, int64_t count) {
  at::Tensor y = x;
  for (int i = 0; i < 8; ++i) y = y.cos() + x;
  Tensors inputs;
  for (int64_t i = 0; i < count; ++i) inputs.push_back(y + static_cast<double>(i));
  return inputs;
}

// Work of the caller's stream that needs the results of all branches.
at::Tensor blend(const Tensors& outputs) {
  at::Tensor sum = at::zeros_like(outputs[0]);
  for (const at::Tensor& output : outputs) sum = sum * 0.5 + output;
  return sum;
}

at::Tensor one_after_the_other(const at::Tensor& x, int64_t count) {
  const Tensors inputs = inputs_from(x, count);
  Tensors outputs;
  for (int64_t i = 0; i < count; ++i) outputs.push_back(work(inputs[static_cast<size_t>(i)], i));
  return blend(outputs);
}

at::Tensor side_by_side(const at::Tensor& x, int64_t count) {
  Tensors inputs = inputs_from(x, count);
  Tensors outputs;
  Branches branches(x.device(), count);
  for (int64_t i = 0; i < count; ++i) {
    at::Tensor input = inputs[static_cast<size_t>(i)];
    branches.run(input, [&] { outputs.push_back(work(input, i)); });
  }
  branches.join();
  return blend(outputs);
}

at::Tensor random_values(int64_t round) {
  torch::manual_seed(static_cast<uint64_t>(round + 7));
  return at::randn({kValues}, at::kDouble).to(at::kCUDA);
}

// The output, and the gradient of its weighted sum.
Tensors with_gradient(const std::function<at::Tensor(const at::Tensor&, int64_t)>& way, const at::Tensor& x,
                      int64_t count) {
  const at::Tensor leaf = x.detach().clone().set_requires_grad(true);
  const at::Tensor out = way(leaf, count);
  const at::Tensor weights = at::linspace(-1, 1, kValues, x.options());
  return {out.detach(), torch::autograd::grad({out}, {leaf}, {weights})[0]};
}

// The gradients of branches are added in an order of the engine's own.
void expect_near(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  EXPECT_LE((got - want).abs().max().item<double>(), 1e-12 * want.abs().max().item<double>()) << what;
}

TEST(BranchesCuda, GiveTheBitsOfOneAfterTheOther) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t count : kCounts)
    for (int64_t round = 0; round < 5; ++round) {
      const at::Tensor x = random_values(round);
      const at::Tensor got = side_by_side(x, count), want = one_after_the_other(x, count);
      EXPECT_TRUE(at::equal(got, want)) << count << " branches, round " << round;
    }
}

TEST(BranchesCuda, KeepTheMemoryOfAnInputThatTheCallerLetsGo) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const int64_t count = Branches::kMost;
  for (int64_t round = 0; round < 5; ++round) {
    const at::Tensor x = random_values(round);
    const at::Tensor want = one_after_the_other(x, count);
    Tensors inputs = inputs_from(x, count), outputs, clobbered;
    Branches branches(x.device(), count);
    for (int64_t i = 0; i < count; ++i) {
      at::Tensor input = std::move(inputs[static_cast<size_t>(i)]);
      branches.run(input, [&] { outputs.push_back(work(input, i)); });
      input = at::Tensor();
      // A block of the size that has just been let go: what the caller's stream would be handed, and write at
      // once.
      clobbered.push_back(at::full({kValues}, std::numeric_limits<double>::quiet_NaN(), x.options()));
    }
    branches.join();
    EXPECT_TRUE(at::equal(blend(outputs), want)) << "round " << round;
  }
}

TEST(BranchesCuda, HaveTheGradientsOfOneAfterTheOther) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t count : kCounts)
    for (int64_t round = 0; round < 3; ++round) {
      const at::Tensor x = random_values(round);
      const Tensors got = with_gradient(side_by_side, x, count),
                    want = with_gradient(one_after_the_other, x, count);
      const std::string what = fmt::format("{} branches, round {}", count, round);
      EXPECT_TRUE(at::equal(got[0], want[0])) << what;
      expect_near(got[1], want[1], what);
    }
}

// Parameters that a single branch knows, as those of seeds are.
TEST(BranchesCuda, GiveEveryBranchTheGradientsOfItsOwnParameters) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const int64_t count = Branches::kMost + 2;
  const at::Tensor x = random_values(0);
  Tensors weights;
  for (int64_t i = 0; i < count; ++i) weights.push_back(random_values(i + 1).set_requires_grad(true));
  const auto gradients = [&](bool in_branches) {
    const Tensors inputs = inputs_from(x, count);
    Tensors outputs;
    Branches branches(x.device(), in_branches ? count : 1);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const auto body = [&] { outputs.push_back(work(inputs[i] * weights[i], static_cast<int64_t>(i))); };
      in_branches ? branches.run(inputs[i], body) : body();
    }
    branches.join();
    return torch::autograd::grad({blend(outputs).sum()}, weights);
  };
  const auto want = gradients(false), got = gradients(true);
  for (size_t i = 0; i < want.size(); ++i) expect_near(got[i], want[i], "branch " + std::to_string(i));
}

TEST(BranchesCuda, AreCapturedAndReplayedWithWhatTheyReadThen) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t count : kCounts) {
    StepGraphs graphs({.device = at::Device(at::kCUDA, 0)});
    const at::Tensor x = random_values(0), out = at::empty_like(x), gradient = at::empty_like(x);
    for (int64_t round = 0; round < 5; ++round) {  // eager, captured, replayed
      x.copy_(random_values(round));
      graphs.run("step", [&] {
        const Tensors results = with_gradient(side_by_side, x, count);
        out.copy_(results[0]);
        gradient.copy_(results[1]);
      });
      const Tensors want = with_gradient(one_after_the_other, x, count);
      const std::string what = fmt::format("{} branches, round {}", count, round);
      EXPECT_TRUE(at::equal(out, want[0])) << what;
      expect_near(gradient, want[1], what);
    }
    EXPECT_EQ(graphs.work().captures, 1);
  }
}

}  // namespace
}  // namespace espalier
