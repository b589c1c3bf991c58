#include "espalier/grow/seeds/squeeze.h"

#include "espalier/lanes/active.h"
#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"

namespace espalier::grow {
namespace {

using lanes::testing::random_lanes;
using lanes::testing::stacked_copy;
using lanes::testing::Tensors;

struct Sizes {
  int64_t entries, batch, channels, height, width, hidden, outputs;
};

Tensors inputs_of(const Sizes& sizes) {
  return {random_lanes({sizes.entries, sizes.batch, sizes.channels, sizes.height, sizes.width}),
          random_lanes({sizes.entries, sizes.hidden, sizes.channels}),
          random_lanes({sizes.entries, sizes.hidden}),
          random_lanes({sizes.entries, sizes.outputs, sizes.hidden}),
          random_lanes({sizes.entries, sizes.outputs})};
}

at::Tensor squeeze(const Tensors& in, double factor) {
  return lane_squeeze(in[0], {in[1], in[2]}, {in[3], in[4]}, factor);
}

// As a network's author would write it, for one entry without its axis.
at::Tensor plain(const Tensors& in, double factor) {
  const at::Tensor pooled = in[0].mean({-2, -1});  // [B,C]
  const at::Tensor middle = (at::matmul(pooled, in[1].t()) + in[2]).relu();
  return factor * (at::matmul(middle, in[3].t()) + in[4]).sigmoid();
}

void expect_squeezes() {
  for (const Sizes& sizes : {Sizes{2, 3, 8, 5, 5, 8, 1},
                             {1, 1, 1, 1, 1, 1, 1},
                             {3, 4, 5, 3, 2, 8, 1},
                             {2, 33, 24, 4, 4, 8, 24},
                             {2, 2, 300, 3, 1, 75, 300},
                             {1, 7, 16, 32, 31, 4, 16}})
    for (const double factor : {1.0, 2.0}) {
      SCOPED_TRACE(std::to_string(sizes.channels) + " channels");
      const lanes::testing::Layer layer{.stacked = [&](const Tensors& in) { return squeeze(in, factor); },
                                        .torch = [&](const Tensors& in) { return plain(in, factor); },
                                        .inputs = inputs_of(sizes)};
      // The kernels have weights of the master type; narrow ones take the way of the layers they are made of.
      lanes::testing::expect_equals_torch(layer, {at::kFloat});
      lanes::testing::expect_isolated(layer, at::kFloat);
    }
}

TEST(LaneSqueeze, EqualsTorchEntryByEntry) {
  expect_squeezes();
}

TEST(LaneSqueezeCuda, EqualsTorchEntryByEntry) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::OnCuda cuda;
  expect_squeezes();
}

// Narrow images with weights of the master type, as seeds have them.
TEST(LaneSqueezeCuda, TakesNarrowImagesWithMasters) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::OnCuda cuda;
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const int64_t channels : {8, 12}) {
      Tensors narrow, wide;
      for (const at::Tensor& input : inputs_of({3, 5, channels, 6, 5, 8, 2})) {
        narrow.push_back(stacked_copy(input, narrow.empty() ? type : at::kFloat).set_requires_grad(true));
        wide.push_back(stacked_copy(narrow.back().detach(), at::kDouble).set_requires_grad(true));
      }
      const at::Tensor out = squeeze(narrow, 2), want = squeeze(wide, 2);
      EXPECT_EQ(out.scalar_type(), at::kFloat);
      const at::Tensor grad = stacked_copy(random_lanes({3, 5, 2}), at::kFloat);
      const auto got = torch::autograd::grad({out}, narrow, {grad});
      const auto expected = torch::autograd::grad({want}, wide, {grad.to(at::kDouble)});
      EXPECT_LE(lanes::testing::distance(out, want), 1e-5 * lanes::testing::largest(want));
      for (size_t i = 0; i < got.size(); ++i)
        EXPECT_LE(lanes::testing::distance(got[i], expected[i]),
                  (i == 0 ? 1e-2 : 1e-5) * lanes::testing::largest(expected[i]))
            << i;
    }
}

TEST(LaneSqueezeCuda, LeavesOutEmptyEntriesForwardAndBackward) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const lanes::testing::OnCuda cuda;
  Tensors in;
  for (const at::Tensor& input : inputs_of({3, 5, 8, 6, 5, 8, 1}))
    in.push_back(stacked_copy(input, in.empty() ? at::kBFloat16 : at::kFloat).set_requires_grad(true));
  const at::Tensor grad = stacked_copy(random_lanes({3, 5, 1}), at::kFloat);
  const at::Tensor all = squeeze(in, 1);
  const auto want = torch::autograd::grad({all}, in, {grad});
  const lanes::ActiveLanes active(at::tensor({2, -1, 0}, at::kLong).to(lanes::testing::test_device()));
  const at::Tensor some = squeeze(in, 1);
  const auto got = torch::autograd::grad({some}, in, {grad});
  for (const int64_t entry : {0, 2}) {
    lanes::testing::expect_same_bits(some.detach().select(0, entry), all.detach().select(0, entry), "out");
    for (size_t i = 0; i < want.size(); ++i)
      lanes::testing::expect_same_bits(got[i].select(0, entry), want[i].select(0, entry),
                                       "gradient " + std::to_string(i));
  }
}

}  // namespace
}  // namespace espalier::grow
