// What a training step launches: this library's kernels, and none of torch's. Seen on a GPU, and where
// kernels are emulated; the CPU's own step is torch's operators in part.
#include <deque>

#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/head/score.h"
#include "espalier/lanes/optim/group_update.h"
#include "tests/grow/grown_stack.h"
#include "tests/support/cuda.h"
#include "tests/support/torch_ops.h"
#ifdef ESPALIER_EMULATED
#include "tests/emulation/emulator.h"
#endif

namespace espalier::grow {
namespace {

using support::OperatorCounter;
using testing::images_for;
using testing::seed_in;
using testing::States;
using testing::two_blocks;

// All that a step of a population does past its batch, with one optimiser per group.
class Step {
 public:
  Step(NetworkStack& population, at::Device device, at::ScalarType compute)
      : population_(population),
        parameters_(population.parameters()),
        x_(lanes::testing::stacked_copy(images_for(population, 6, at::kFloat).to(compute).to(device),
                                        compute)) {
    const auto device_options = at::TensorOptions(device);
    const int64_t lanes = population.num_lanes();
    const auto doubles = at::zeros({lanes}, device_options.dtype(at::kDouble));
    labels_ = at::zeros({lanes, 6}, device_options.dtype(at::kLong));
    scores_ = at::zeros({3, lanes}, device_options.dtype(at::kDouble));
    inputs_ = {.is_active = at::ones({lanes}, device_options.dtype(at::kBool)),
               .peak_rates = at::full({lanes}, 0.1, device_options),
               .step = at::zeros({1}, device_options.dtype(at::kDouble)),
               .schedule = {.curve = lanes::RateCurve::kLinear, .steps = 100, .warm_up = 20, .rise = 0.05}};
    weights_ = at::ones({lanes}, device_options);
    sums_ = {.norms = doubles.clone(), .largest_norms = doubles.clone(), .non_finite = doubles.clone()};
    groups_ = population.groups();
    std::vector<lanes::UpdatedGroup> updated;
    for (const ParameterGroup& group : groups_) {
      const std::vector<lanes::LaneParameter*> own = lanes::without_names(group.parameters);
      lanes::UpdatedGroup made{
          .parameters = own,
          .optimizer = &optimizers_.emplace_back(own, lanes::LaneSgdOptions{.momentum = 0.9}),
          .lanes = group.entry_lanes,
          .momentum_factors = doubles + 0.9,
          .weight_decays = doubles};
      if (group.slot < 0) {
        made.lanes.resize(static_cast<size_t>(lanes));
        std::iota(made.lanes.begin(), made.lanes.end(), 0);
      }
      updated.push_back(made);
    }
    update_.set_groups(updated);
  }

  void run() {
    population_.move_amplitudes(inputs_.step, 5);
    const at::Tensor logits = population_.forward(x_, lanes::Mode::kTrain);
    const at::Tensor losses = lanes::lane_cross_entropy(logits, labels_, {}, {}, scores_);
    lanes::lane_backward(losses, parameters_, weights_);
    const c10::NoGradGuard no_grad;
    inputs_.losses = losses.detach();
    update_.run(inputs_, sums_);
  }

 private:
  NetworkStack& population_;
  std::vector<lanes::LaneParameter*> parameters_;
  std::vector<ParameterGroup> groups_;
  std::deque<lanes::LaneSGD> optimizers_;
  lanes::GroupUpdate update_;
  lanes::UpdateInputs inputs_;
  lanes::UpdateSums sums_;
  at::Tensor x_, labels_, scores_, weights_;
};

// Seeds of all blueprints, in all stages and operators that have passes of their own.
States grown_states() {
  States states(4, 3);
  for (int32_t lane = 0; lane < 4; ++lane) states.at(lane, 0) = seed_in(SeedStage::kTraining, lane + 1);
  for (int32_t lane = 0; lane < 3; ++lane)
    states.at(lane, 1) = seed_in(SeedStage::kBlending, lane + 5, 0.3f, BlendOperator::kGate);
  states.at(3, 2) = seed_in(SeedStage::kHolding, 6, 0.6f, BlendOperator::kMultiply);
  return states;
}

TEST(LaunchesCuda, OfAStepAreAllThisLibrarysOwn) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Device device = espalier::testing::kIsEmulated ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
  for (const auto compute : {at::kBFloat16, at::kHalf})  // convolutions of f32 are cuDNN's
    for (const bool grows : {false, true}) {
      NetworkStack population(two_blocks(4), BlueprintRegistry(), device, compute);
      population.apply(grows ? grown_states().all : States(4, 3).all);
      Step step(population, device, compute);
      step.run();
      const OperatorCounter counter;
      step.run();
      for (const auto& [name, count] : OperatorCounter::computing())
        ADD_FAILURE() << name << " " << count << " times, " << compute << ", grows " << grows;
    }
}

TEST(LaunchesCuda, OfAPassOverTheValidationSplitAreAllThisLibrarysOwn) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const at::Device device = espalier::testing::kIsEmulated ? at::Device(at::kCPU) : at::Device(at::kCUDA, 0);
  const c10::NoGradGuard no_grad;
  for (const auto compute : {at::kBFloat16, at::kHalf})
    for (const bool grows : {false, true}) {
      NetworkStack population(two_blocks(4), BlueprintRegistry(), device, compute);
      population.apply(grows ? grown_states().all : States(4, 3).all);
      NetworkStack one(two_blocks(1), BlueprintRegistry(), at::kCPU, at::kFloat);
      // One batch for all lanes, and each slot's seeds left out.
      const at::Tensor batch =
          lanes::testing::stacked_copy(images_for(one, 6, at::kFloat).to(compute).to(device), compute);
      const at::Tensor x = batch.expand({4, -1, -1, -1, -1});
      const at::Tensor labels =
          at::zeros({1, 6}, at::TensorOptions(at::kLong).device(device)).expand({4, -1});
      const at::Tensor sums = at::zeros({3, 4}, at::TensorOptions(at::kDouble).device(device));
      const std::vector<int64_t> slots = grows ? std::vector<int64_t>{0, 1, 2} : std::vector<int64_t>{};
      const auto pass = [&] {
        const HostBranches logits = population.forward_without_each(x, slots);
        lanes::add_lane_scores_(sums, logits.whole, labels);
        for (const at::Tensor& without : logits.without) lanes::add_lane_scores_(sums, without, labels);
      };
      pass();
      const OperatorCounter counter;
      pass();
      for (const auto& [name, count] : OperatorCounter::computing())
        ADD_FAILURE() << name << " " << count << " times, " << compute << ", grows " << grows;
    }
}

TEST(Launches, AreNoticedWhereTorchComputesAndNotWhereItOnlyLooks) {
  const at::Tensor x = at::ones({2, 3});
  const OperatorCounter counter;
  const at::Tensor view = x.view({3, 2}).t().select(1, 1);
  EXPECT_TRUE(OperatorCounter::computing().empty());
  const at::Tensor sum = x.select(1, 0) + view;
  EXPECT_EQ(OperatorCounter::computing(), (std::map<std::string, int64_t>{{"aten::add", 1}}));
}

#ifdef ESPALIER_EMULATED
// Every launch takes two microseconds or more, which is what a step of few networks consists of.
TEST(Launches, OfABareStepAreFew) {
  NetworkStack population(two_blocks(1), BlueprintRegistry(), at::kCPU, at::kBFloat16);
  Step step(population, at::kCPU, at::kBFloat16);
  step.run();
  const int64_t before = emulate::launches();
  step.run();
  EXPECT_EQ(emulate::launches() - before, 23);
}
#endif

}  // namespace
}  // namespace espalier::grow
