#include "espalier/grow/blend/op.h"

#include "espalier/core/seed_stage.h"
#include "tests/lanes/compare.h"
#include "tests/support/message.h"
#include "tests/support/threads.h"

namespace espalier::grow {
namespace {

using lanes::testing::Dice;
using lanes::testing::expect_same_bits;
using lanes::testing::Layer;
using lanes::testing::random_lanes;
using lanes::testing::stacked_copy;
using lanes::testing::Tensors;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Four lanes and three entries: lane 3 in entry 0, lane 1 in entry 2; entry 1 and lanes 0 and 2 are without.
struct Fixture {
  BlendTable table{.entries = at::tensor({3, -1, 1}, at::kLong),
                   .entry_of_lane = at::tensor({-1, 2, -1, 0}, at::kLong),
                   .amplitude = at::tensor({0.9f, 0.25f, 0.5f, 0.75f}),
                   .blend_operator = at::zeros({4}, at::kByte),
                   .isolated = at::zeros({4}, at::kBool)};

  void set_operator(BlendOperator blend_operator) {
    table.blend_operator.fill_(static_cast<int>(blend_operator));
  }
};

// The largest value of the fixture's entries that hold a seed.
double largest_in_use(const at::Tensor& entries) {
  return lanes::testing::largest(entries.index_select(0, at::tensor({0, 2})));
}

struct Results {
  at::Tensor out, grad_h, grad_seeds, grad_gates;
};

Results blend(const BlendTable& table, const at::Tensor& h, const at::Tensor& seeds, const at::Tensor& gates,
              const at::Tensor& grad) {
  Tensors leaves;
  for (const at::Tensor& each : {h, seeds, gates})
    leaves.push_back(each.defined() ? stacked_copy(each, each.scalar_type()).set_requires_grad(true)
                                    : at::Tensor());
  const at::Tensor out = lane_blend(leaves[0], leaves[1], leaves[2], table);
  if (!gates.defined()) leaves.pop_back();
  const auto grads = torch::autograd::grad({out}, leaves, {grad});
  return {out.detach(), grads[0], grads[1], gates.defined() ? grads[2] : at::Tensor()};
}

at::Tensor plain(BlendOperator blend_operator, double a, const at::Tensor& h, const at::Tensor& s,
                 const at::Tensor& g) {
  if (blend_operator == BlendOperator::kMultiply) return h * (1 + a * at::tanh(s - h));
  if (blend_operator == BlendOperator::kGate) return h + a * g.view({-1, 1, 1, 1}) * (s - h);
  return h + a * (s - h);
}

TEST(LaneBlend, EqualsTorchForEveryOperator) {
  for (const auto chosen : {BlendOperator::kAdd, BlendOperator::kMultiply, BlendOperator::kGate}) {
    SCOPED_TRACE(name_of(chosen));
    torch::manual_seed(7);
    Fixture fixture;
    fixture.set_operator(chosen);
    const at::Tensor h = random_lanes({4, 3, 5, 4, 3}), grad = random_lanes({4, 3, 5, 4, 3});
    const at::Tensor seeds = random_lanes({3, 3, 5, 4, 3}), gates = random_lanes({3, 3}).sigmoid_();
    const Results got = blend(fixture.table, h, seeds, gates, grad);
    for (int64_t lane = 0; lane < 4; ++lane) {
      const int64_t entry = fixture.table.entry_of_lane[lane].item<int64_t>();
      if (entry < 0) {
        expect_same_bits(got.out.select(0, lane), h.select(0, lane), "lane without a seed");
        expect_same_bits(got.grad_h.select(0, lane), grad.select(0, lane), "its gradient");
        continue;
      }
      const auto leaf = [](const at::Tensor& from) { return from.clone().set_requires_grad(true); };
      const at::Tensor own_h = leaf(h.select(0, lane)), own_s = leaf(seeds.select(0, entry)),
                       own_g = leaf(gates.select(0, entry));
      const double a = fixture.table.amplitude[lane].item<double>();
      const at::Tensor out = plain(chosen, a, own_h, own_s, own_g);
      const auto want = torch::autograd::grad({out}, {own_h, own_s, own_g}, {grad.select(0, lane)},
                                              std::nullopt, false, /*allow_unused=*/true);
      EXPECT_LE(lanes::testing::distance(got.out.select(0, lane), out), 1e-12);
      EXPECT_LE(lanes::testing::distance(got.grad_h.select(0, lane), want[0]), 1e-12);
      EXPECT_LE(lanes::testing::distance(got.grad_seeds.select(0, entry), want[1]), 1e-12);
      const at::Tensor grad_gate = want[2].defined() ? want[2] : at::zeros({3}, at::kDouble);
      EXPECT_LE(lanes::testing::distance(got.grad_gates.select(0, entry), grad_gate), 1e-12);
    }
  }
}

TEST(LaneBlend, ReturnsTheHostItselfAtAmplitudeZeroWhateverTheSeedIs) {
  for (const auto chosen : {BlendOperator::kAdd, BlendOperator::kMultiply, BlendOperator::kGate}) {
    Fixture fixture;
    fixture.set_operator(chosen);
    fixture.table.amplitude.zero_();
    const at::Tensor h = random_lanes({4, 2, 3, 3, 3}), grad = random_lanes({4, 2, 3, 3, 3});
    const at::Tensor seeds = random_lanes({3, 2, 3, 3, 3}).fill_(kNan),
                     gates = random_lanes({3, 2}).fill_(kNan);
    const Results got = blend(fixture.table, h, seeds, gates, grad);
    expect_same_bits(got.out, h, "out");
    expect_same_bits(got.grad_h, grad, "gradient of h");
    EXPECT_EQ(largest_in_use(got.grad_seeds), 0);
    EXPECT_EQ(largest_in_use(got.grad_gates), 0);
  }
}

TEST(LaneBlend, LetsAnIsolatedSeedLearnUnfelt) {
  for (const auto chosen : {BlendOperator::kAdd, BlendOperator::kMultiply, BlendOperator::kGate}) {
    Fixture fixture;
    fixture.set_operator(chosen);
    fixture.table.isolated.fill_(true);
    const at::Tensor h = random_lanes({4, 2, 3, 3, 3}), grad = random_lanes({4, 2, 3, 3, 3});
    const at::Tensor seeds = random_lanes({3, 2, 3, 3, 3}).fill_(kNan), gates = random_lanes({3, 2});
    const Results got = blend(fixture.table, h, seeds, gates, grad);
    expect_same_bits(got.out, h, "out");
    expect_same_bits(got.grad_h, grad, "gradient of h");
    expect_same_bits(got.grad_seeds.select(0, 0), grad.select(0, 3), "gradient of the seed");
    expect_same_bits(got.grad_seeds.select(0, 2), grad.select(0, 1), "gradient of the seed");
    EXPECT_EQ(largest_in_use(got.grad_gates), 0);
  }
}

// A select and a blend of what it gave, as a population does it.
at::Tensor around(const Tensors& in, const BlendTable& table) {
  const Selected selected = lane_select(in[0], table);
  return lane_blend(selected.through, selected.input * 3, {}, table);
}

TEST(LaneBlend, HandsStacksOnInTheirLayoutForEveryType) {
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16})
    for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous})
      for (const int64_t channels : {1, 5}) {
        Fixture fixture;
        at::Tensor h = lanes::empty_lanes({4, 3, channels, 3, 3}, at::TensorOptions(type), format);
        h.copy_(at::randn(h.sizes()));
        h.set_requires_grad(true);
        const Selected selected = lane_select(h, fixture.table);
        EXPECT_EQ(selected.through.data_ptr(), h.data_ptr());
        EXPECT_EQ(selected.through.strides(), h.strides());
        EXPECT_EQ(selected.input.strides(), h.strides());
        const at::Tensor out = lane_blend(selected.through, selected.input, {}, fixture.table);
        EXPECT_EQ(out.strides(), h.strides());
        EXPECT_EQ(out.scalar_type(), type);
        const at::Tensor grad = lanes::empty_lanes(h.sizes(), h.options().requires_grad(false), format);
        grad.copy_(at::randn(h.sizes()));
        EXPECT_EQ(torch::autograd::grad({out}, {h}, {grad})[0].strides(), h.strides());
      }
}

TEST(LaneBlend, GivesALaneTheSameBitsWhereverItsSeedSits) {
  torch::manual_seed(3);
  // All lanes hold a seed: entries in one order, then in another, then every lane alone.
  const at::Tensor h = stacked_copy(random_lanes({3, 2, 5, 3, 3}), at::kFloat);
  const at::Tensor grad = stacked_copy(random_lanes({3, 2, 5, 3, 3}), at::kFloat);
  const at::Tensor seeds = stacked_copy(random_lanes({3, 2, 5, 3, 3}), at::kFloat);
  const at::Tensor gates = stacked_copy(random_lanes({3, 2}).sigmoid_(), at::kFloat);
  for (const auto chosen : {BlendOperator::kAdd, BlendOperator::kMultiply, BlendOperator::kGate}) {
    const auto table_of = [&](std::vector<int64_t> entries, const at::Tensor& amplitude) {
      const int64_t lanes = amplitude.size(0);
      at::Tensor entry_of_lane = at::full({lanes}, -1, at::kLong);
      for (size_t entry = 0; entry < entries.size(); ++entry)
        entry_of_lane[entries[entry]] = static_cast<int64_t>(entry);
      return BlendTable{.entries = at::tensor(entries, at::kLong),
                        .entry_of_lane = entry_of_lane,
                        .amplitude = amplitude,
                        .blend_operator = at::full({lanes}, static_cast<int>(chosen), at::kByte),
                        .isolated = at::zeros({lanes}, at::kBool)};
    };
    const at::Tensor amplitude = at::tensor({0.3f, 0.6f, 1.0f});
    const Results all = blend(table_of({0, 1, 2}, amplitude), h, seeds, gates, grad);
    const auto shuffle = [](const at::Tensor& t) {
      return stacked_copy(t.index_select(0, at::tensor({2, 0, 1}, at::kLong)), t.scalar_type());
    };
    const Results moved = blend(table_of({2, 0, 1}, amplitude), h, shuffle(seeds), shuffle(gates), grad);
    expect_same_bits(moved.out, all.out, "out");
    expect_same_bits(moved.grad_h, all.grad_h, "gradient of h");
    expect_same_bits(moved.grad_seeds, shuffle(all.grad_seeds), "gradient of seeds");
    expect_same_bits(moved.grad_gates, shuffle(all.grad_gates), "gradient of gates");
    for (int64_t lane = 0; lane < 3; ++lane) {
      const auto cut = [&](const at::Tensor& t) {
        return stacked_copy(t.slice(0, lane, lane + 1), t.scalar_type());
      };
      const Results alone =
          blend(table_of({0}, amplitude.slice(0, lane, lane + 1)), cut(h), cut(seeds), cut(gates), cut(grad));
      expect_same_bits(alone.out, all.out.slice(0, lane, lane + 1), "alone");
      expect_same_bits(alone.grad_h, all.grad_h.slice(0, lane, lane + 1), "alone, h");
      expect_same_bits(alone.grad_seeds, all.grad_seeds.slice(0, lane, lane + 1), "alone, seeds");
      expect_same_bits(alone.grad_gates, all.grad_gates.slice(0, lane, lane + 1), "alone, gates");
    }
  }
}

TEST(LaneBlend, GivesTheSameBitsOnAnyNumberOfThreads) {
  torch::manual_seed(4);
  const at::Tensor h = random_lanes({4, 40, 8, 16, 16}), grad = random_lanes(h.sizes());
  const at::Tensor seeds = random_lanes({3, 40, 8, 16, 16}), gates = random_lanes({3, 40}).sigmoid_();
  const auto in_use = [](const at::Tensor& entries) { return entries.index_select(0, at::tensor({0, 2})); };
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto chosen : {BlendOperator::kAdd, BlendOperator::kMultiply, BlendOperator::kGate}) {
      Fixture fixture;
      fixture.set_operator(chosen);
      fixture.table.isolated.copy_(at::tensor({0, 1, 0, 0}, at::kLong) != 0);
      const auto as = [&](const at::Tensor& values) { return stacked_copy(values, type); };
      espalier::testing::expect_same_bits_on_any_threads(
          [&] {
            const Results blended = blend(fixture.table, as(h), as(seeds), as(gates), as(grad));
            const at::Tensor from = as(h).set_requires_grad(true);
            const Selected selected = lane_select(from, fixture.table);
            const Tensors sent{as(grad), as(seeds)};
            const at::Tensor grad_from =
                torch::autograd::grad({selected.through, selected.input}, {from}, sent)[0];
            return Tensors{blended.out,
                           blended.grad_h,
                           in_use(blended.grad_seeds),
                           in_use(blended.grad_gates),
                           in_use(selected.input),
                           grad_from};
          },
          name_of(chosen));
    }
}

TEST(LaneSelect, GathersLanesAndAddsTheirGradients) {
  Fixture fixture;
  const at::Tensor h = random_lanes({4, 2, 3, 3, 3}).set_requires_grad(true);
  const Selected selected = lane_select(h, fixture.table);
  expect_same_bits(selected.input.detach().select(0, 0), h.detach().select(0, 3), "entry 0");
  expect_same_bits(selected.input.detach().select(0, 2), h.detach().select(0, 1), "entry 2");
  const at::Tensor through = random_lanes({4, 2, 3, 3, 3}), input = random_lanes({3, 2, 3, 3, 3});
  input.select(0, 1).fill_(kNan);  // an empty entry has no gradient worth the name
  through[0][0][0][0][0] = -0.0;
  const at::Tensor got = torch::autograd::grad({selected.through, selected.input}, {h}, {through, input})[0];
  expect_same_bits(got.select(0, 0), through.select(0, 0), "lane 0");
  expect_same_bits(got.select(0, 2), through.select(0, 2), "lane 2");
  expect_same_bits(got.select(0, 1), through.select(0, 1) + input.select(0, 2), "lane 1");
  expect_same_bits(got.select(0, 3), through.select(0, 3) + input.select(0, 0), "lane 3");
}

TEST(LaneSelect, GivesIsolatedSeedsADetachedInput) {
  Fixture fixture;
  fixture.table.isolated.copy_(at::tensor({0, 1, 0, 0}, at::kLong) != 0);
  const at::Tensor h = random_lanes({4, 2, 3, 3, 3}).set_requires_grad(true);
  const Selected selected = lane_select(h, fixture.table);
  const at::Tensor through = random_lanes({4, 2, 3, 3, 3}), input = random_lanes({3, 2, 3, 3, 3});
  const at::Tensor got = torch::autograd::grad({selected.through, selected.input}, {h}, {through, input})[0];
  expect_same_bits(got.select(0, 1), through.select(0, 1), "isolated");
  expect_same_bits(got.select(0, 3), through.select(0, 3) + input.select(0, 0), "not isolated");
}

TEST(LaneBlend, KeepsLanesApart) {
  Fixture fixture;
  lanes::testing::expect_isolated({.stacked = [&](const Tensors& in) { return around(in, fixture.table); },
                                   .torch = {},
                                   .inputs = {random_lanes({4, 2, 3, 3, 3})}});
}

TEST(LaneBlend, NamesTheArgumentThatIsWrong) {
  Fixture fixture;
  const at::Tensor h = random_lanes({4, 2, 3, 3, 3});
  EXPECT_ERROR(lane_blend(h, random_lanes({2, 2, 3, 3, 3}), {}, fixture.table), c10::Error,
               "lane_blend: seeds", "[E,B,C,H,W]");
  EXPECT_ERROR(lane_blend(h, random_lanes({3, 2, 3, 3, 3}), random_lanes({3, 3}), fixture.table), c10::Error,
               "lane_blend: gates", "[E,B]");
  EXPECT_ERROR(lane_select(random_lanes({5, 2, 3, 3, 3}), fixture.table), c10::Error,
               "lane_select: entry_of_lane", "[L]");
}

}  // namespace
}  // namespace espalier::grow
