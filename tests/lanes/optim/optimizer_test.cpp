#include "espalier/lanes/optim/optimizer.h"

#include <deque>
#include <memory>

#include "espalier/lanes/optim/gradients.h"
#include "tests/lanes/compare.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#include "tests/support/stacked_layout.h"

namespace espalier::lanes {
namespace {

using testing::Tensors;

enum class Kind { kPlain, kMomentum, kNesterov, kWarmed, kFalling, kAdamW };
constexpr Kind kAllKinds[] = {Kind::kPlain,  Kind::kMomentum, Kind::kNesterov,
                              Kind::kWarmed, Kind::kFalling,  Kind::kAdamW};
constexpr int kSteps = 10;
constexpr int kWarmUpSteps = 6;
constexpr double kRateFactor = 0.75;
constexpr double kStepsLeft = 5;  // after any number of steps, as they are never told otherwise
constexpr double kRates[] = {0.1, 0.03, 0.2, 0.01, 0.05};

std::unique_ptr<LaneOptimizer> make(Kind kind, const std::vector<LaneParameter*>& parameters) {
  if (kind == Kind::kAdamW)
    return std::make_unique<LaneAdamW>(parameters, LaneAdamWOptions{.weight_decay = 0.05});
  if (kind == Kind::kPlain) return std::make_unique<LaneSGD>(parameters, LaneSgdOptions{});
  LaneSgdOptions options{.momentum = 0.9, .nesterov = kind == Kind::kNesterov, .weight_decay = 5e-4};
  if (kind == Kind::kWarmed) {
    options.rate_factor = kRateFactor;
    options.warm_up_steps = kWarmUpSteps;
  }
  if (kind == Kind::kFalling) options.curve = RateCurve::kLinear;
  auto made = std::make_unique<LaneSGD>(parameters, options);
  if (kind == Kind::kFalling)
    made->steps_left = at::full({1}, kStepsLeft, parameters[0]->value().options().dtype(at::kDouble));
  return made;
}

// What a rate is multiplied with in a step that counts from 0.
double share_of(Kind kind, int step) {
  if (kind == Kind::kFalling) return 1 - (step + 0.5) / (step + kStepsLeft);
  return kind == Kind::kWarmed ? kRateFactor * std::min(1.0, (step + 0.5) / kWarmUpSteps) : 1;
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
  std::deque<LaneParameter> owned;
  std::vector<LaneParameter*> parameters;

  explicit Population(int64_t lanes, at::ScalarType type, int64_t first_lane = 0) {
    for (const std::vector<int64_t>& sizes :
         {std::vector<int64_t>{lanes, 5, 3, 3, 3}, {lanes, 7}, {lanes, 10, 33}}) {
      owned.emplace_back(sizes, type, type);
      parameters.push_back(&owned.back());
      fill(owned.back().storage(), 1000, first_lane);
    }
  }
  void draw_gradients(int step, int64_t first_lane = 0) const {
    for (const LaneParameter* parameter : parameters) fill(parameter->gradient(), step, first_lane);
  }
  Tensors values() const {
    Tensors all;
    for (const LaneParameter* parameter : parameters) all.push_back(parameter->value());
    return all;
  }
  static void fill(const at::Tensor& stacked, int step, int64_t first_lane) {
    for (int64_t lane = 0; lane < stacked.size(0); ++lane) {
      torch::manual_seed(static_cast<uint64_t>(step * 100 + first_lane + lane));
      stacked.select(0, lane).copy_(at::randn(stacked.sizes().slice(1), at::kDouble));
    }
  }
};

// The same limit for all lanes.
void clip(const std::vector<LaneParameter*>& parameters, const at::Tensor& norms, double max_norm) {
  clip_lane_gradients_(parameters, norms,
                       at::full(norms.sizes(), max_norm, norms.options().dtype(at::kDouble)));
}

void set_rates(LaneOptimizer& optimiser, int64_t first_lane = 0) {
  for (int64_t lane = 0; lane < optimiser.learning_rates.size(0); ++lane)
    optimiser.learning_rates[lane] = kRates[first_lane + lane];
}

// All that a lane is made of.
void expect_same_lane(const LaneOptimizer& a, int64_t lane_a, const LaneOptimizer& b, int64_t lane_b) {
  for (size_t i = 0; i < a.parameters().size(); ++i)
    testing::expect_same_bits(a.parameters()[i]->value().detach()[lane_a],
                              b.parameters()[i]->value().detach()[lane_b], "parameter");
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
      theirs.push_back(testing::select_lane(population.values(), lane));
      torchs.push_back(make_torch(kind, theirs.back(), kRates[lane]));
    }
    for (int step = 0; step < kSteps; ++step) {
      population.draw_gradients(step);
      for (size_t lane = 0; lane < 5; ++lane) {
        for (size_t i = 0; i < theirs[lane].size(); ++i)
          theirs[lane][i].mutable_grad() =
              population.parameters[i]->gradient()[static_cast<int64_t>(lane)].clone();
        torchs[lane]->param_groups()[0].options().set_lr(kRates[lane] * share_of(kind, step));
        torchs[lane]->step();
      }
      optimiser->step();
      for (int64_t lane = 0; lane < 5; ++lane)
        for (size_t i = 0; i < population.parameters.size(); ++i) {
          const at::Tensor want = theirs[static_cast<size_t>(lane)][i].detach();
          EXPECT_LE(testing::distance(population.parameters[i]->value().detach()[lane], want),
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
      clip(all.parameters, lane_gradient_norms(all.parameters), 7);
      together->step();
    }
    for (int64_t lane = 0; lane < 5; ++lane) {
      const Population one(1, at::kFloat, lane);
      const auto alone = make(kind, one.parameters);
      set_rates(*alone, lane);
      for (int step = 0; step < kSteps; ++step) {
        one.draw_gradients(step, lane);
        clip(one.parameters, lane_gradient_norms(one.parameters), 7);
        alone->step();
      }
      expect_same_lane(*together, lane, *alone, 0);
    }
  }
}

TEST(LaneOptim, GivesALaneWithOptionsOfItsOwnTheBitsItHasAlone) {
  const std::vector<double> decays{0, 5e-4, 0.1}, factors{0.9, 0.5, 0}, norms{7, 0, 2};
  enum class Way { kMomentum, kNesterov, kAdamW };
  for (const Way way : {Way::kMomentum, Way::kNesterov, Way::kAdamW}) {
    const auto make_with = [&](const std::vector<LaneParameter*>& parameters, double decay,
                               double factor) -> std::unique_ptr<LaneOptimizer> {
      if (way == Way::kAdamW)
        return std::make_unique<LaneAdamW>(parameters, LaneAdamWOptions{.weight_decay = decay});
      return std::make_unique<LaneSGD>(
          parameters,
          LaneSgdOptions{
              .momentum = factor, .nesterov = way == Way::kNesterov && factor > 0, .weight_decay = decay});
    };
    const Population all(3, at::kFloat);
    const auto together = make_with(all.parameters, 1, 0.25);
    set_rates(*together);
    together->weight_decays.copy_(at::tensor(decays, at::kDouble));
    if (auto* sgd = dynamic_cast<LaneSGD*>(together.get()))
      sgd->momentum_factors.copy_(at::tensor(factors, at::kDouble));
    for (int step = 0; step < kSteps; ++step) {
      all.draw_gradients(step);
      clip_lane_gradients_(all.parameters, lane_gradient_norms(all.parameters),
                           at::tensor(norms, at::kDouble));
      together->step();
    }
    for (int64_t lane = 0; lane < 3; ++lane) {
      const Population one(1, at::kFloat, lane);
      const auto alone = make_with(one.parameters, decays.at(static_cast<size_t>(lane)),
                                   factors.at(static_cast<size_t>(lane)));
      set_rates(*alone, lane);
      for (int step = 0; step < kSteps; ++step) {
        one.draw_gradients(step, lane);
        const double most = norms.at(static_cast<size_t>(lane));
        if (most > 0) clip(one.parameters, lane_gradient_norms(one.parameters), most);
        alone->step();
      }
      for (size_t i = 0; i < one.parameters.size(); ++i)
        testing::expect_same_bits(all.parameters[i]->value().detach()[lane],
                                  one.parameters[i]->value().detach()[0], "lane " + std::to_string(lane));
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
      sick.parameters[0]->gradient()[1].fill_(std::numeric_limits<float>::infinity());
      sick.parameters[1]->gradient()[1].fill_(std::numeric_limits<float>::quiet_NaN());
      for (const Population* population : {&healthy, &sick})
        clip(population->parameters, lane_gradient_norms(population->parameters), 2);
      well->step();
      ill->step();
    }
    EXPECT_FALSE(sick.parameters[1]->value().detach()[1].isfinite().any().item<bool>());
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
    for (const LaneParameter* parameter : moved.parameters)
      parameter->gradient()[1].fill_(std::numeric_limits<float>::quiet_NaN());
    a->step(lane_gradient_norms(moved.parameters).isfinite());
    expect_same_lane(*a, 0, *b, 0);
    expect_same_lane(*a, 1, *b, 1);
    EXPECT_FALSE(at::equal(moved.parameters[0]->value()[2], still.parameters[0]->value()[2]));
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
    const at::Tensor& weight = population.parameters[0]->value();
    const void* const before[] = {weight.data_ptr(), weight.grad().data_ptr(),
                                  optimiser->learning_rates.data_ptr()};
    population.draw_gradients(0);
    optimiser->step();
    const void* const after[] = {weight.data_ptr(), weight.grad().data_ptr(),
                                 optimiser->learning_rates.data_ptr()};
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(before[i], after[i]);
    for (const at::Tensor& state : optimiser->state())
      EXPECT_TRUE(state.dim() != 5 || state.strides() == weight.strides());
  }
}

TEST(LaneOptim, ShowsMoreEntriesOfStateThatNeverMoves) {
  for (const Kind kind : kAllKinds) {
    Population grown(4, at::kFloat), whole(4, at::kFloat);
    for (LaneParameter* parameter : grown.parameters) parameter->use_lanes(1);
    const auto a = make(kind, grown.parameters), b = make(kind, whole.parameters);
    ASSERT_EQ(a->learning_rates.size(0), 1);
    const void* const weight = grown.parameters[0]->value().data_ptr();
    grown.draw_gradients(0);
    a->step();
    for (LaneParameter* parameter : grown.parameters) parameter->use_lanes(3);
    a->use_lanes(3);
    EXPECT_EQ(grown.parameters[0]->value().data_ptr(), weight);
    grown.draw_gradients(1);
    a->step();
    b->frozen.fill_(true);
    for (const int64_t lanes : {1, 3}) {  // all four, of which the same are trained
      b->frozen.slice(0, 0, lanes).fill_(false);
      whole.draw_gradients(lanes == 1 ? 0 : 1);
      b->step();
    }
    for (int64_t lane = 0; lane < 3; ++lane) expect_same_lane(*a, lane, *b, lane);
  }
}

// The same gradients give the same bits as on the CPU: operations that round once, in the same order. But for
// AdamW's square root, which MKL rounds up to one bit off.
TEST(LaneOptimCuda, UpdatesAsTheCpuDoesBitForBit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const Kind kind : kAllKinds) {
    Population cpu(5, at::kFloat);
    std::deque<LaneParameter> owned;
    std::vector<LaneParameter*> parameters;
    for (const LaneParameter* parameter : cpu.parameters) {
      owned.emplace_back(parameter->value().sizes(), at::TensorOptions(at::kFloat).device(at::kCUDA),
                         at::kBFloat16);
      owned.back().storage().copy_(parameter->storage());
      owned.back().refresh();
      parameters.push_back(&owned.back());
    }
    const auto want = make(kind, cpu.parameters), got = make(kind, parameters);
    set_rates(*want);
    set_rates(*got);
    want->frozen[3] = true;
    got->frozen[3] = true;
    for (int step = 0; step < kSteps; ++step) {
      cpu.draw_gradients(step);
      for (size_t i = 0; i < parameters.size(); ++i)
        parameters[i]->gradient().copy_(cpu.parameters[i]->gradient());
      const at::Tensor norms = lane_gradient_norms(parameters),
                       expected = lane_gradient_norms(cpu.parameters);
      EXPECT_LE(testing::distance(norms.cpu(), expected), 1e-5 * testing::largest(expected));
      clip(cpu.parameters, expected.to(at::kFloat), 7);
      clip(parameters, expected.to(at::kFloat).to(at::kCUDA), 7);
      want->step();
      got->step();
    }
    for (size_t i = 0; i < parameters.size(); ++i) {
      const at::Tensor ours = parameters[i]->value().detach().cpu();
      const at::Tensor theirs = cpu.parameters[i]->value().detach();
      if (kind == Kind::kAdamW)
        EXPECT_LE(testing::distance(ours, theirs), 0x1p-23 * testing::largest(theirs));
      else
        testing::expect_same_bits(ours, theirs, "value");
      testing::expect_same_bits(parameters[i]->compute().cpu(), ours.to(at::kBFloat16), "copy");
    }
    for (size_t i = 0; i < want->state().size(); ++i)
      testing::expect_same_bits(got->state()[i].cpu(), want->state()[i], "state");
  }
}

TEST(LaneGradientsCuda, AreWrittenForStacksOfAnySize) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  LaneParameter host({3, 5, 3, 3, 3}, options, at::kFloat), seeds({2, 7}, options, at::kFloat),
      unused({2, 4}, options, at::kFloat);
  for (const LaneParameter* parameter : {&host, &seeds, &unused}) parameter->gradient().fill_(77);
  host.storage().fill_(2);
  lane_backward((host.value() * host.value()).sum({1, 2, 3, 4}) + seeds.value().sum(),
                {&host, &seeds, &unused});
  EXPECT_TRUE(at::equal(host.gradient().cpu(), at::full({3, 5, 3, 3, 3}, 4.0)));
  EXPECT_TRUE(at::equal(seeds.gradient().cpu(), at::full({2, 7}, 3.0)));
  EXPECT_EQ(testing::largest(unused.gradient()), 0);
}

// More than fit into one launch, of stacks of many sizes: every block finds its parameter.
TEST(LaneGradientsCuda, AreWrittenForHundredsOfParameters) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const auto options =
      at::TensorOptions(at::kFloat)
          .device(espalier::testing::kIsEmulated ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0));
  std::deque<LaneParameter> parameters;
  std::vector<LaneParameter*> all;
  at::Tensor losses = at::zeros({1}, options);
  for (int64_t i = 0; i < 450; ++i) {
    const int64_t lanes = 1 + i % 5, values = i % 7 == 0 ? 1500 + i : i % 3 == 0 ? 1024 : 1 + i % 50;
    parameters.emplace_back(at::IntArrayRef{lanes, values}, options, at::kFloat);
    all.push_back(&parameters.back());
    parameters.back().gradient().fill_(77);
    losses =
        losses + ((parameters.back().value() * (i + 1)).sum(1) * at::arange(1, lanes + 1, options)).sum();
  }
  lane_backward(losses, all);
  for (size_t i = 0; i < all.size(); ++i) {
    const at::Tensor gradient = all[i]->gradient().cpu();
    for (int64_t lane = 0; lane < gradient.size(0); ++lane)
      EXPECT_TRUE(at::equal(gradient[lane], at::full({gradient.size(1)},
                                                     static_cast<double>((i + 1) * (lane + 1)), at::kFloat)))
          << i << " " << lane;
  }
}

// One factor for all lanes comes expanded, with no memory of its own for each.
TEST(LaneGradientsCuda, AreScaledByOneFactorForAllLanes) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const auto options = at::TensorOptions(at::kFloat).device(at::kCUDA);
  LaneParameter weight({5, 3, 7}, options, at::kFloat);
  weight.gradient().fill_(8);
  scale_lane_gradients_({&weight}, at::full({1}, 0.25, options).expand({5}));
  EXPECT_TRUE(at::equal(weight.gradient().cpu(), at::full({5, 3, 7}, 2.0)));
}

TEST(LaneOptim, LetsComputeCopiesFollow) {
  LaneParameter weight({2, 4, 8, 3, 3}, at::kFloat, at::kBFloat16);
  Population::fill(weight.storage(), 7, 0);
  Population::fill(weight.gradient(), 8, 0);
  weight.refresh();
  LaneSGD({&weight}, {.learning_rate = 0.5}).step();
  EXPECT_TRUE(at::equal(weight.compute(), weight.value().to(at::kBFloat16)));
  EXPECT_TRUE(support::is_stacked_channels_last(weight.compute()));
}

TEST(LaneOptim, NamesTheArgumentThatItRefuses) {
  LaneParameter two({2, 3}, at::kFloat, at::kFloat), three({3, 3}, at::kFloat, at::kFloat);
  EXPECT_ERROR(LaneSGD({}, {}), c10::Error, "parameters", "none");
  EXPECT_ERROR(LaneSGD({&two, &three}, {}), c10::Error, "parameters[1]", "[2,...]", "[3, 3]");
  EXPECT_ERROR(LaneSGD({&two}, {.nesterov = true}), c10::Error, "nesterov");
  LaneSGD optimiser({&two}, {});
  EXPECT_ERROR(optimiser.step(at::ones({3}, at::kBool)), c10::Error, "lanes", "[2]", "[3]");
  EXPECT_ERROR(LaneSGD({&two}, {.curve = RateCurve::kStep}).step(), c10::Error, "steps_left", "[1]", "none");
}

TEST(LaneGradients, EqualTorchsNormsAndClipping) {
  const Population population(5, at::kDouble);
  population.draw_gradients(1);
  population.parameters[2]->gradient()[2].mul_(100);  // one lane far above the limit, others below
  std::vector<Tensors> theirs;
  for (int64_t lane = 0; lane < 5; ++lane) {
    theirs.push_back(testing::select_lane(population.values(), lane));
    for (size_t i = 0; i < theirs.back().size(); ++i)
      theirs.back()[i].mutable_grad() = population.parameters[i]->gradient()[lane].clone();
  }
  const at::Tensor norms = lane_gradient_norms(population.parameters);
  clip(population.parameters, norms, 50);
  for (int64_t lane = 0; lane < 5; ++lane) {
    Tensors& own = theirs[static_cast<size_t>(lane)];
    const double want = torch::nn::utils::clip_grad_norm_(own, 50);
    EXPECT_NEAR(norms[lane].item<double>(), want, 1e-9 * want);
    for (size_t i = 0; i < own.size(); ++i)
      EXPECT_LE(testing::distance(population.parameters[i]->gradient()[lane], own[i].grad()), 1e-9);
  }
}

TEST(LaneGradients, AreWrittenOverWhereTheParametersHaveThem) {
  LaneParameter weight({3, 5, 3, 3, 3}, at::kFloat, at::kFloat), bias({3, 4}, at::kFloat, at::kFloat),
      unused({3, 2}, at::kFloat, at::kFloat);
  for (const LaneParameter* parameter : {&weight, &bias, &unused}) {
    parameter->storage().fill_(2);
    parameter->gradient().fill_(77);
  }
  const void* before = weight.gradient().data_ptr();
  lane_backward((weight.value() * weight.value()).sum({1, 2, 3, 4}) + bias.value().sum(1),
                {&weight, &bias, &unused});
  EXPECT_EQ(weight.gradient().data_ptr(), before);
  EXPECT_EQ(weight.gradient().strides(), weight.value().strides());
  EXPECT_TRUE(at::equal(weight.gradient(), at::full({3, 5, 3, 3, 3}, 4.0)));
  EXPECT_TRUE(at::equal(bias.gradient(), at::ones({3, 4})));
  EXPECT_EQ(testing::largest(unused.gradient()), 0);
}

TEST(LaneGradients, AreWeighedByLane) {
  LaneParameter parameter({3, 2}, at::kFloat, at::kFloat);
  parameter.storage().fill_(2);
  const at::Tensor weights = at::tensor({1.0F, 0.0F, -4.0F});
  lane_backward(parameter.value().square().sum(1), {&parameter}, weights);
  EXPECT_TRUE(at::equal(parameter.gradient(), (weights * 4).unsqueeze(1).expand({3, 2})));
}

TEST(LaneGradients, NamesTheArgumentThatItRefuses) {
  EXPECT_ERROR(lane_gradient_norms({}), c10::Error, "parameters", "none");
  LaneParameter parameter({2, 3}, at::kFloat, at::kFloat);
  const at::Tensor losses = parameter.value().sum(1);
  EXPECT_ERROR(lane_backward(losses, {&parameter}, at::ones({3})), c10::Error, "lane_backward", "weights",
               "[2]", "[3]");
  EXPECT_ERROR(lane_backward(losses, {&parameter}, at::ones({2}, at::kDouble)), c10::Error, "weights",
               "Float", "Double");
  const at::Tensor two = at::ones({2}, at::kDouble), three = at::ones({3}, at::kDouble);
  EXPECT_ERROR(clip_lane_gradients_({&parameter}, three, two), c10::Error, " norms", "[2]", "[3]");
  EXPECT_ERROR(clip_lane_gradients_({&parameter}, two, three), c10::Error, "max_norms", "[2]", "[3]");
}

}  // namespace
}  // namespace espalier::lanes
