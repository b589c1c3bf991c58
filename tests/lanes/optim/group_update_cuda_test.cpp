#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "espalier/tensor/captured_graphs.h"
#include "tests/lanes/optim/updated_networks.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::distance;
using testing::expect_same_bits;
using testing::expect_same_entry;
using testing::kInf;
using testing::kNaN;
using testing::lanes_up_to;
using testing::largest;
using testing::NetworkOptions;
using testing::Networks;
using testing::numbers;
using testing::set_scales;
using testing::Shape;
using testing::some_shapes;

// The kernels beside the same update by torch's operators, on copies.
struct Pair {
  explicit Pair(const NetworkOptions& setup) : fused(setup), plain(setup) {}

  void step(int number, const std::function<void(Networks&)>& spoil = {}) {
    for (Networks* each : {&fused, &plain}) {
      each->draw_gradients(number);
      if (spoil) spoil(*each);
    }
    fused.run();
    plain.run_plainly();
  }

  void expect_same_networks(const std::string& what) const {
    for (size_t g = 0; g < fused.groups.size(); ++g)
      for (int64_t e = 0; e < std::ssize(fused.groups[g].lanes); ++e)
        expect_same_entry(fused.entry(g, e), plain.entry(g, e),
                          what + ", group " + std::to_string(g) + " entry " + std::to_string(e));
  }

  // Norms add up in another order. A norm has roundings in proportion to the depth of its sum, a few dozens.
  void expect_same_sums(const std::string& what) const {
    const double epsilon = fused.setup.type == at::kDouble ? 0x1p-52 : 0x1p-23;
    const auto expect_near = [&](const at::Tensor& got, const at::Tensor& want) {
      EXPECT_TRUE(at::allclose(got, want, 16 * epsilon, 0, /*equal_nan=*/true))
          << what << ": " << got << want;
    };
    expect_near(fused.sums.norms, plain.sums.norms);
    expect_near(fused.sums.largest_norms, plain.sums.largest_norms);
    for (size_t g = 1; g < fused.groups.size(); ++g)
      expect_near(fused.groups[g].norms, plain.groups[g].norms);
    expect_same_bits(fused.sums.non_finite, plain.sums.non_finite, what + ", non_finite");
    expect_same_bits(fused.sums.skipped, plain.sums.skipped, what + ", skipped");
    expect_same_bits(fused.sums.is_whole, plain.sums.is_whole, what + ", is_whole");
  }

  Networks fused, plain;
};

// Parameters of one value, of about a unit of the kernels (2048) and beyond, and weights of convolutions.
std::vector<Shape> odd_shapes(int64_t lanes) {
  std::vector<int64_t> backwards = lanes_up_to(lanes);
  std::ranges::reverse(backwards);
  std::vector<int64_t> gaps = lanes_up_to(lanes);
  gaps.insert(gaps.begin(), -1);
  gaps.push_back(-1);
  return {{lanes_up_to(lanes), {{1}, {31}, {2047}, {2048}, {2049}, {5000}, {16, 3, 3, 3}}},
          {backwards, {{2049}, {1}}},
          {gaps, {{8, 8, 3, 3}, {31}}},
          {std::vector<int64_t>(3, -1), {{31}}},
          {{lanes - 1}, {{5000}}}};
}

// All that may befall a step. Lanes are taken modulo how many there are.
void trouble(Networks& networks, int step) {
  const int64_t lanes = networks.num_lanes();
  const size_t num_groups = networks.groups.size();
  networks.inputs.losses.fill_(1);
  networks.inputs.is_active.fill_(true);
  if (step == 1) networks.inputs.losses[1 % lanes] = kNaN;
  if (step == 2) networks.poison(0, 2 % lanes, kInf);
  if (step == 3 && num_groups > 1) networks.poison(1, 0);
  if (step == 4) networks.inputs.is_active[0] = false;
  if (num_groups > 2) {
    networks.poison(2, 0);  // empty
    networks.groups[2].frozen[1] = step == 5;
  }
  networks.groups[0].optimizer->frozen[lanes - 1] = step == 6;
}

TEST(GroupUpdateCuda, MovesEveryEntryAsTorchDoesBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  struct Types {
    at::ScalarType master, compute;
  };
  for (const Types types :
       {Types{at::kFloat, at::kFloat}, Types{at::kFloat, at::kBFloat16}, Types{at::kFloat, at::kHalf},
        Types{at::kDouble, at::kDouble}, Types{at::kDouble, at::kBFloat16}, Types{at::kDouble, at::kHalf}})
    for (const int64_t lanes : {1, 4})
      for (const bool has_seeds : {false, true})
        for (const bool is_nesterov : {false, true})
          for (const int64_t warm_up : {0, 5}) {
            NetworkOptions setup{.shapes = odd_shapes(lanes),
                                 .type = types.master,
                                 .compute = types.compute,
                                 .device = at::kCUDA,
                                 .sgd = {.momentum = 0.9,
                                         .nesterov = is_nesterov,
                                         .weight_decay = 5e-4,
                                         .rate_factor = warm_up > 0 ? 0.75 : 1.25,
                                         .warm_up_steps = warm_up}};
            if (!has_seeds) setup.shapes.resize(1);
            Pair pair(setup);
            const std::string what =
                fmt::format("{} computing in {}, {} lanes, seeds {}, nesterov {}, warm-up {}",
                            c10::toString(types.master), c10::toString(types.compute), lanes, has_seeds,
                            is_nesterov, warm_up);
            for (int step = 0; step < 8; ++step)
              pair.step(step, [&](Networks& each) { trouble(each, step); });
            pair.expect_same_networks(what);
            pair.expect_same_sums(what);
            for (const LaneParameter& parameter : pair.fused.owned)
              expect_same_bits(parameter.compute(), parameter.value().detach().to(types.compute),
                               what + ", copy");
          }
}

TEST(GroupUpdateCuda, NamesTheTypeOfACopyThatItCannotWrite) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  EXPECT_ERROR(
      Networks({.shapes = some_shapes(), .type = at::kDouble, .compute = at::kFloat, .device = at::kCUDA}),
      c10::Error, "compute", "bf16 or f16", "Float");
}

TEST(GroupUpdateCuda, MovesWithoutMomentumAndDecayAsTorchDoesBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  Pair pair({.shapes = odd_shapes(3), .compute = at::kBFloat16, .device = at::kCUDA, .sgd = {}});
  for (int step = 0; step < 4; ++step) pair.step(step, [&](Networks& each) { trouble(each, step); });
  pair.expect_same_networks("plain SGD");
  pair.expect_same_sums("plain SGD");
}

TEST(GroupUpdateCuda, TakesTheOptionsOfEveryLaneAsTorchDoesBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  Pair pair({.shapes = odd_shapes(4), .compute = at::kBFloat16, .device = at::kCUDA});
  for (Networks* each : {&pair.fused, &pair.plain})
    for (const UpdatedGroup& group : each->groups) {
      group.momentum_factors.copy_(at::tensor({0.9, 0.0, 0.5, 0.99}, at::kDouble));
      group.weight_decays.copy_(at::tensor({0.0, 5e-4, 0.1, 3e-3}, at::kDouble));
    }
  for (int step = 0; step < 8; ++step) pair.step(step, [&](Networks& each) { trouble(each, step); });
  pair.expect_same_networks("options by lane");
}

TEST(GroupUpdateCuda, LetsRatesFallWithAgeAsTorchDoesBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const RateCurve curve :
       {RateCurve::kLinear, RateCurve::kCosine, RateCurve::kConstant, RateCurve::kStep})
    for (const int64_t warm_up : {0, 5}) {
      Pair pair({.shapes = odd_shapes(3),
                 .compute = at::kBFloat16,
                 .device = at::kCUDA,
                 .sgd = {.momentum = 0.9, .nesterov = true, .warm_up_steps = warm_up, .curve = curve}});
      for (int step = 0; step < 8; ++step)
        pair.step(step, [&](Networks& each) {
          each.set_steps_left(8 - step);
          trouble(each, step);
        });
      pair.expect_same_networks(fmt::format("curve {}, warm-up {}", static_cast<int>(curve), warm_up));
    }
}

TEST(GroupUpdateCuda, DividesByLossScalesAsTorchDoesBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const auto type : {at::kFloat, at::kDouble}) {
    Pair pair({.shapes = odd_shapes(4), .type = type, .compute = at::kHalf, .device = at::kCUDA});
    for (int step = 0; step < 8; ++step)
      pair.step(step, [&](Networks& each) {
        set_scales(each, {1, 1024, 65536, 8}, 8);
        trouble(each, step);
        if (step == 7) each.poison(0, 3, kInf);  // at the smallest scale
      });
    pair.expect_same_networks("scaled");
    pair.expect_same_sums("scaled");
    EXPECT_EQ(numbers(pair.fused.sums.skipped), (std::vector<double>{0, 0, 1, 1}));
    EXPECT_EQ(numbers(pair.fused.sums.is_whole), (std::vector<double>{1, 1, 1, 0}));
    EXPECT_EQ(numbers(pair.fused.sums.non_finite), (std::vector<double>{0, 1, 0, 1}));
  }
}

// Norms of some thousand values differ by a few roundings, so what is clipped by them does too.
TEST(GroupUpdateCuda, ClipsAsTorchDoesWithinSomeRoundings) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const auto type : {at::kFloat, at::kDouble})
    for (const int64_t lanes : {1, 4}) {
      Pair pair({.shapes = odd_shapes(lanes), .type = type, .compute = at::kBFloat16, .device = at::kCUDA});
      for (Networks* each : {&pair.fused, &pair.plain}) each->set_clip_norm(30);  // not all are above it
      for (int step = 0; step < 8; ++step) pair.step(step, [&](Networks& each) { trouble(each, step); });
      pair.expect_same_sums("clipped");
      const double epsilon = type == at::kDouble ? 0x1p-52 : 0x1p-23;
      for (size_t g = 0; g < pair.fused.groups.size(); ++g) {
        const UpdatedGroup &ours = pair.fused.groups[g], &theirs = pair.plain.groups[g];
        double most = 0, most_momentum = 0;  // of the group: a single value may have come back to about 0
        for (size_t i = 0; i < ours.parameters.size(); ++i) {
          most = std::max(most, largest(theirs.parameters[i]->value().detach()));
          most_momentum = std::max(most_momentum, largest(theirs.optimizer->momentum(i)));
        }
        for (size_t i = 0; i < ours.parameters.size(); ++i) {
          const at::Tensor got = ours.parameters[i]->value().detach();
          EXPECT_LE(distance(got, theirs.parameters[i]->value().detach()), 8 * epsilon * most)
              << "group " << g << " parameter " << i;
          EXPECT_LE(distance(ours.optimizer->momentum(i), theirs.optimizer->momentum(i)),
                    8 * epsilon * most_momentum)
              << "momentum, group " << g << " parameter " << i;
          expect_same_bits(ours.parameters[i]->compute(), got.to(at::kBFloat16), "copy");
        }
        expect_same_bits(ours.optimizer->ages(), theirs.optimizer->ages(), "ages");
      }
    }
}

// The first groups alone.
void use_groups(Networks& networks, size_t count) {
  networks.update.set_groups(
      {networks.groups.begin(), networks.groups.begin() + static_cast<int64_t>(count)});
}

NetworkOptions many_groups() {
  NetworkOptions setup{.shapes = odd_shapes(4), .compute = at::kBFloat16, .device = at::kCUDA};
  for (int i = 0; i < 6; ++i) setup.shapes.push_back({{i % 4, -1, (i + 1) % 4}, {{31}, {5000}}});
  return setup;
}

TEST(GroupUpdateCuda, IsCapturedAgainOnlyWhereItsListsOutgrewTheirRoom) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  Pair pair(many_groups());
  const size_t all = pair.fused.groups.size();
  int64_t last = 0;
  int step = 0;
  const auto step_with = [&](size_t count) {
    for (Networks* each : {&pair.fused, &pair.plain}) use_groups(*each, count);
    pair.step(step++);
    pair.expect_same_networks(std::to_string(count) + " groups");
    pair.expect_same_sums(std::to_string(count) + " groups");
    return pair.fused.update.generation();
  };
  GroupUpdate fresh;
  fresh.set_groups({pair.fused.groups.begin(), pair.fused.groups.begin() + 1});
  const int64_t first = fresh.generation();
  fresh.set_groups(pair.fused.groups);
  EXPECT_GT(fresh.generation(), first) << "more groups than there was room for";
  last = fresh.generation();
  fresh.set_groups({pair.fused.groups.begin(), pair.fused.groups.begin() + 2});
  EXPECT_EQ(fresh.generation(), last) << "fewer";
  fresh.set_groups(pair.fused.groups);
  EXPECT_EQ(fresh.generation(), last) << "as many as before";

  last = step_with(1);
  for (const size_t count : {all, size_t{2}, size_t{1}, all}) EXPECT_EQ(step_with(count), last);
}

TEST(GroupUpdateCuda, FollowsItsGroupsWhenItIsReplayed) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  Pair pair(many_groups());
  const size_t all = pair.fused.groups.size();
  StepGraphs graphs({.device = at::Device(at::kCUDA, 0)});
  int step = 0;
  for (const size_t count : {size_t{2}, size_t{2}, all, size_t{1}, size_t{4}, all}) {
    for (Networks* each : {&pair.fused, &pair.plain}) {
      use_groups(*each, count);
      each->draw_gradients(step);
      trouble(*each, step);
    }
    graphs.run("update", [&] { pair.fused.run(); });
    pair.plain.run_plainly();
    pair.expect_same_networks("step " + std::to_string(step));
    pair.expect_same_sums("step " + std::to_string(step));
    step += 1;
  }
  EXPECT_EQ(graphs.num_captures(), 1);
}

}  // namespace
}  // namespace espalier::lanes
