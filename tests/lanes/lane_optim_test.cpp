#include "espalier/lanes/lane_optim.h"

#include <memory>

#include "espalier/lanes/lane_gradients.h"
#include "tests/lanes/lane_compare.h"
#include "tests/support/message.h"

namespace espalier::lanes {
namespace {

using testing::Tensors;

enum class Kind { kPlain, kMomentum, kNesterov, kAdamW };
constexpr Kind kAllKinds[] = {Kind::kPlain, Kind::kMomentum, Kind::kNesterov, Kind::kAdamW};
constexpr int kSteps = 10;
constexpr double kRates[] = {0.1, 0.03, 0.2, 0.01, 0.05};

std::unique_ptr<LaneOptimizer> make(Kind kind, const Tensors& parameters) {
  if (kind == Kind::kAdamW)
    return std::make_unique<LaneAdamW>(parameters, LaneAdamWOptions{.weight_decay = 0.05});
  if (kind == Kind::kPlain) return std::make_unique<LaneSGD>(parameters, LaneSgdOptions{});
  return std::make_unique<LaneSGD>(
      parameters, LaneSgdOptions{.momentum = 0.9, .nesterov = kind == Kind::kNesterov, .weight_decay = 5e-4});
}

std::unique_ptr<torch::optim::Optimizer> make_torch(Kind kind, const Tensors& parameters, double rate) {
  if (kind == Kind::kAdamW)
    return std::make_unique<torch::optim::AdamW>(parameters,
                                                 torch::optim::AdamWOptions(rate).weight_decay(0.05));
  if (kind == Kind::kPlain)
    return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(rate));
  return std::make_unique<torch::optim::SGD>(
      parameters,
      torch::optim::SGDOptions(rate).momentum(0.9).nesterov(kind == Kind::kNesterov).weight_decay(5e-4));
}

// A population's parameters, and gradients that are a function of (step, lane) alone.
struct Population {
  Tensors parameters;

  explicit Population(int64_t lanes, at::ScalarType type, int64_t first_lane = 0) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{lanes, 5, 3, 3, 3}, {lanes, 7}, {lanes, 10, 33}}) {
      parameters.push_back(make_parameter(sizes, type));
      fill(parameters.back().detach(), 1000, first_lane);
    }
  }
  void draw_gradients(int step, int64_t first_lane = 0) const {
    for (const at::Tensor& parameter : parameters) fill(parameter.grad(), step, first_lane);
  }
  static void fill(const at::Tensor& stacked, int step, int64_t first_lane) {
    for (int64_t lane = 0; lane < stacked.size(0); ++lane) {
      torch::manual_seed(static_cast<uint64_t>(step * 100 + first_lane + lane));
      stacked.select(0, lane).copy_(at::randn(stacked.sizes().slice(1), at::kDouble));
    }
  }
};

void set_rates(LaneOptimizer& optimiser, int64_t first_lane = 0) {
  for (int64_t lane = 0; lane < optimiser.learning_rates.size(0); ++lane)
    optimiser.learning_rates[lane] = kRates[first_lane + lane];
}

// All that a lane is made of.
void expect_same_lane(const LaneOptimizer& a, int64_t lane_a, const LaneOptimizer& b, int64_t lane_b) {
  for (size_t i = 0; i < a.parameters().size(); ++i)
    testing::expect_same_bits(a.parameters()[i].detach()[lane_a], b.parameters()[i].detach()[lane_b],
                              "parameter");
  ASSERT_EQ(a.state().size(), b.state().size());
  for (size_t i = 0; i < a.state().size(); ++i)
    testing::expect_same_bits(a.state()[i][lane_a], b.state()[i][lane_b], "state");
}

TEST(LaneOptim, EqualsTorchLaneByLaneOverTenSteps) {
  for (const Kind kind : kAllKinds) {
    const Population population(5, at::kDouble);
    const auto optimiser = make(kind, population.parameters);
    set_rates(*optimiser);
    std::vector<Tensors> theirs;
    std::vector<std::unique_ptr<torch::optim::Optimizer>> torchs;
    for (int64_t lane = 0; lane < 5; ++lane) {
      theirs.push_back(testing::select_lane(population.parameters, lane));
      torchs.push_back(make_torch(kind, theirs.back(), kRates[lane]));
    }
    for (int step = 0; step < kSteps; ++step) {
      population.draw_gradients(step);
      for (size_t lane = 0; lane < 5; ++lane) {
        for (size_t i = 0; i < theirs[lane].size(); ++i)
          theirs[lane][i].mutable_grad() =
              population.parameters[i].grad()[static_cast<int64_t>(lane)].clone();
        torchs[lane]->step();
      }
      optimiser->step();
      for (int64_t lane = 0; lane < 5; ++lane)
        for (size_t i = 0; i < population.parameters.size(); ++i) {
          const at::Tensor want = theirs[static_cast<size_t>(lane)][i].detach();
          EXPECT_LE(testing::distance(population.parameters[i].detach()[lane], want),
                    1e-9 * testing::largest(want))
              << "kind " << static_cast<int>(kind) << " step " << step << " lane " << lane;
        }
    }
  }
}

TEST(LaneOptim, GivesALaneTheBitsItHasAlone) {
  for (const Kind kind : kAllKinds) {
    const Population all(5, at::kFloat);
    const auto together = make(kind, all.parameters);
    set_rates(*together);
    for (int step = 0; step < kSteps; ++step) {
      all.draw_gradients(step);
      clip_lane_gradients_(all.parameters, lane_gradient_norms(all.parameters), 7);
      together->step();
    }
    for (int64_t lane = 0; lane < 5; ++lane) {
      const Population one(1, at::kFloat, lane);
      const auto alone = make(kind, one.parameters);
      set_rates(*alone, lane);
      for (int step = 0; step < kSteps; ++step) {
        one.draw_gradients(step, lane);
        clip_lane_gradients_(one.parameters, lane_gradient_norms(one.parameters), 7);
        alone->step();
      }
      expect_same_lane(*together, lane, *alone, 0);
    }
  }
}

TEST(LaneOptim, KeepsALaneThatIsNotFiniteFromTheOthers) {
  for (const Kind kind : kAllKinds) {
    const Population healthy(3, at::kFloat), sick(3, at::kFloat);
    const auto well = make(kind, healthy.parameters), ill = make(kind, sick.parameters);
    for (int step = 0; step < 3; ++step) {
      healthy.draw_gradients(step);
      sick.draw_gradients(step);
      sick.parameters[0].grad()[1].fill_(std::numeric_limits<float>::infinity());
      sick.parameters[1].grad()[1].fill_(std::numeric_limits<float>::quiet_NaN());
      for (const Population* population : {&healthy, &sick})
        clip_lane_gradients_(population->parameters, lane_gradient_norms(population->parameters), 2);
      well->step();
      ill->step();
    }
    EXPECT_FALSE(sick.parameters[1].detach()[1].isfinite().any().item<bool>());
    for (const int64_t lane : {0, 2}) expect_same_lane(*well, lane, *ill, lane);
  }
}

TEST(LaneOptim, LeavesFrozenAndSkippedLanesAsTheyWere) {
  for (const Kind kind : kAllKinds) {
    const Population moved(3, at::kFloat), still(3, at::kFloat);
    const auto a = make(kind, moved.parameters), b = make(kind, still.parameters);
    moved.draw_gradients(0);
    still.draw_gradients(0);
    a->step();
    b->step();
    a->frozen[0] = true;
    moved.draw_gradients(1);
    for (const at::Tensor& parameter : moved.parameters)
      parameter.grad()[1].fill_(std::numeric_limits<float>::quiet_NaN());
    a->step(lane_gradient_norms(moved.parameters).isfinite());
    expect_same_lane(*a, 0, *b, 0);
    expect_same_lane(*a, 1, *b, 1);
    EXPECT_FALSE(at::equal(moved.parameters[0][2], still.parameters[0][2]));
  }
}

TEST(LaneOptim, StartsALaneAfreshOnReset) {
  for (const Kind kind : kAllKinds) {
    const Population used(3, at::kFloat), fresh(3, at::kFloat);
    const auto a = make(kind, used.parameters), b = make(kind, fresh.parameters);
    for (int step = 0; step < 3; ++step) {
      used.draw_gradients(step);
      a->step();
    }
    Tensors state;
    for (const at::Tensor& tensor : a->state()) state.push_back(tensor.clone());
    a->reset(at::arange(3) == 1);
    for (size_t i = 0; i < state.size(); ++i) {
      testing::expect_same_bits(a->state()[i][1], b->state()[i][1], "state of the lane that was reset");
      for (const int64_t lane : {0, 2})
        testing::expect_same_bits(a->state()[i][lane], state[i][lane], "other lanes");
    }
  }
}

TEST(LaneOptim, KeepsParametersGradientsAndStateInTheirLayout) {
  for (const Kind kind : kAllKinds) {
    const Population population(3, at::kFloat);
    const auto optimiser = make(kind, population.parameters);
    const at::Tensor& weight = population.parameters[0];
    const void* const before[] = {weight.data_ptr(), weight.grad().data_ptr(),
                                  optimiser->learning_rates.data_ptr()};
    population.draw_gradients(0);
    optimiser->step();
    optimiser->zero_grad();
    EXPECT_EQ(testing::largest(weight.grad()), 0);
    const void* const after[] = {weight.data_ptr(), weight.grad().data_ptr(),
                                 optimiser->learning_rates.data_ptr()};
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(before[i], after[i]);
    for (const at::Tensor& state : optimiser->state())
      EXPECT_TRUE(state.dim() != 5 || state.strides() == weight.strides());
  }
}

TEST(LaneOptim, NamesTheArgumentThatItRefuses) {
  EXPECT_ERROR(LaneSGD({}, {}), c10::Error, "parameters", "none");
  EXPECT_ERROR(LaneSGD({make_parameter({2, 3}, at::kFloat), make_parameter({3, 3}, at::kFloat)}, {}),
               c10::Error, "parameters[1]", "[2,...]", "[3, 3]");
  EXPECT_ERROR(LaneSGD({at::zeros({2, 3})}, {}), c10::Error, "parameters[0]", "make_parameter");
  EXPECT_ERROR(LaneSGD({make_parameter({2, 3}, at::kFloat)}, {.nesterov = true}), c10::Error, "nesterov");
  LaneSGD optimiser({make_parameter({2, 3}, at::kFloat)}, {});
  EXPECT_ERROR(optimiser.step(at::ones({3}, at::kBool)), c10::Error, "lanes", "[2]", "[3]");
}

TEST(LaneGradients, EqualTorchsNormsAndClipping) {
  const Population population(5, at::kDouble);
  population.draw_gradients(1);
  population.parameters[2].grad()[2].mul_(100);  // one lane far above the limit, others below
  std::vector<Tensors> theirs;
  for (int64_t lane = 0; lane < 5; ++lane) {
    theirs.push_back(testing::select_lane(population.parameters, lane));
    for (size_t i = 0; i < theirs.back().size(); ++i)
      theirs.back()[i].mutable_grad() = population.parameters[i].grad()[lane].clone();
  }
  const at::Tensor norms = lane_gradient_norms(population.parameters);
  clip_lane_gradients_(population.parameters, norms, 50);
  for (int64_t lane = 0; lane < 5; ++lane) {
    Tensors& own = theirs[static_cast<size_t>(lane)];
    const double want = torch::nn::utils::clip_grad_norm_(own, 50);
    EXPECT_NEAR(norms[lane].item<double>(), want, 1e-9 * want);
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_LE(testing::distance(population.parameters[i].grad()[lane], own[i].grad()), 1e-9);
  }
}

TEST(LaneGradients, AreWrittenOverWhereTheParametersHaveThem) {
  const Tensors parameters{make_parameter({3, 5, 3, 3, 3}, at::kFloat), make_parameter({3, 4}, at::kFloat),
                           make_parameter({3, 2}, at::kFloat)};
  for (const at::Tensor& parameter : parameters) {
    parameter.detach().fill_(2);
    parameter.grad().fill_(77);
  }
  const void* before = parameters[0].grad().data_ptr();
  const at::Tensor weight = parameters[0];
  lane_backward((weight * weight).sum({1, 2, 3, 4}) + parameters[1].sum(1), parameters);
  EXPECT_EQ(weight.grad().data_ptr(), before);
  EXPECT_EQ(weight.grad().strides(), weight.strides());
  EXPECT_TRUE(at::equal(weight.grad(), at::full({3, 5, 3, 3, 3}, 4.0)));
  EXPECT_TRUE(at::equal(parameters[1].grad(), at::ones({3, 4})));
  EXPECT_EQ(testing::largest(parameters[2].grad()), 0);  // not used
}

TEST(LaneGradients, NamesTheArgumentThatItRefuses) {
  EXPECT_ERROR(lane_gradient_norms({}), c10::Error, "parameters", "none");
  EXPECT_ERROR(lane_gradient_norms({at::zeros({2, 3})}), c10::Error, "parameters[0]", "gradient");
  const Tensors parameters{make_parameter({2, 3}, at::kFloat)};
  EXPECT_ERROR(clip_lane_gradients_(parameters, at::ones({3}), 1), c10::Error, "norms", "[2]", "[3]");
  EXPECT_ERROR(clip_lane_gradients_(parameters, at::ones({2}), 0), c10::Error, "max_norm", "0");
}

}  // namespace
}  // namespace espalier::lanes
