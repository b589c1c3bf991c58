// A task that no policy without memory can solve: a cue is shown in the first step, and 20 steps later, when
// it has long gone, the slot of that number has to be named.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <ctime>

#include "espalier/policy/learn/ppo.h"

namespace espalier::policy {
namespace {

constexpr int64_t kLanes = 64, kDelay = 20, kSteps = kDelay + 1, kCues = 4;
constexpr ActionSpace kSpace{.num_slots = kCues, .num_blueprints = 2};

enum class Memory { kKept, kEmptied };

class CueTask {
 public:
  CueTask(Memory memory, uint64_t seed)
      : memory_(memory),
        network_({.space = kSpace,
                  .num_features = kCues + 1,
                  .encoder_size = 64,
                  .hidden_size = 64,
                  .seed = seed}),
        sampler_(kSpace, at::arange(2).eq(1)),
        rollout_(network_.options(), {.lanes = kLanes, .steps = kSteps}),
        ppo_(network_, sampler_, options()) {
    torch::manual_seed(seed);
  }

  // Plays a round and learns from it. Returns the share of lanes that named the right slot.
  double round() {
    const double right = play(Choosing::kSample);
    ppo_.update(rollout_);
    return right;
  }

  double play(Choosing choosing) {
    const c10::NoGradGuard no_grad;
    const at::Tensor cue = at::randint(kCues, {kLanes}, at::kLong);
    const at::Tensor none = at::full({kLanes, kCues}, int64_t{kNoBlueprint}, at::kLong);
    RecurrentState state = network_.initial_state(kLanes);
    double right = 0;
    rollout_.begin();
    for (int64_t t = 0; t < kSteps; ++t) {
      const bool asked = t == kDelay;
      at::Tensor features = at::zeros({kLanes, kCues + 1});
      if (t == 0) features.slice(1, 0, kCues).copy_(at::one_hot(cue, kCues));
      if (asked) features.select(1, kCues).fill_(1);
      // WAIT until the question comes; then a slot has to be named.
      const at::Tensor op = at::arange(kNumSeedOps).eq(asked ? static_cast<int64_t>(SeedOp::kAdvance) : 0);
      const ActionMasks masks{.op = op.expand({kLanes, kNumSeedOps}),
                              .slot = op.view({1, kNumSeedOps, 1}).expand({kLanes, kNumSeedOps, kCues})};
      const at::Tensor clears = at::full({kLanes}, t == 0 || memory_ == Memory::kEmptied, at::kBool);
      const Observation seen{features, none};
      const RecurrentState before = state;
      const NetworkOutput out = network_.step(seen, state, clears);
      const Decision decision =
          sampler_.decide(out.logits, masks, at::rand({kLanes, kSpace.num_choices()}), choosing);
      rollout_.store(StepDecision{seen, before, clears, decision, ppo_.values().denormalise(out.value)});
      at::Tensor reward = at::zeros({kLanes});
      if (asked) reward = decision.actions.select(1, 1).eq(cue).to(at::kFloat);
      right = reward.mean().item<double>();
      rollout_.store(StepOutcome{.reward = reward,
                                 .ended = at::full({kLanes}, asked, at::kBool),
                                 .truncated = at::zeros({kLanes}, at::kBool),
                                 .bootstrap = at::zeros({kLanes}),
                                 .counts = at::ones({kLanes}, at::kBool)});
    }
    return right;
  }

 private:
  static PpoOptions options() {
    PpoOptions options;
    options.adam.learning_rate = 3e-3;
    // One step in 21 decides anything, and the mean KL is over all of them.
    options.target_kl = 0.02 / kSteps;
    options.entropy_first.fill(0.05);  // a policy that settles before it has seen all cues stays wrong
    return options;
  }

  Memory memory_;
  PolicyNetwork network_;
  ActionSampler sampler_;
  Rollout rollout_;
  Ppo ppo_;
};

TEST(PolicyMemorySlow, SolvesWithMemoryWhatStaysAtChanceWithout) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const std::clock_t begin = std::clock();  // this one thread's: others may be busy too
  CueTask with(Memory::kKept, 1);
  int rounds = 0;
  double lately = 0;  // a running mean
  while (lately < 0.95 && rounds < 400) {
    lately += 0.1 * (with.round() - lately);
    ++rounds;
  }
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_GE(with.play(Choosing::kLikeliest), 0.95) << "after " << rounds << " rounds";
  EXPECT_LT(seconds, 60);

  CueTask without(Memory::kEmptied, 1);
  double right = 0;
  const int last = 20;
  for (int round = 0; round < rounds; ++round) {
    const double now = without.round();
    if (round >= rounds - last) right += now / last;
  }
  // 1280 guesses: chance is 0.25, five standard errors 0.06.
  EXPECT_LT(right, 0.25 + 0.06);
  at::set_num_threads(threads);
}

}  // namespace
}  // namespace espalier::policy
