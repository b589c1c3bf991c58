// Reading a number on the host, or letting one decide how large a result is, makes a GPU wait. The operators
// known to do so are recorded, so that the CPU can show that there are none.
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>
#include <string>

#include "espalier/policy/acting.h"
#include "espalier/policy/learn/ppo.h"
#include "espalier/policy/reward/account.h"
#include "tests/policy/num_seeds.h"

namespace espalier::policy {
namespace {

constexpr ActionSpace kSpace{.num_slots = 2, .num_blueprints = 3};
constexpr int64_t kLanes = 3, kSteps = 4;

const std::set<std::string> kReads{"aten::item",
                                   "aten::_local_scalar_dense",
                                   "aten::is_nonzero",
                                   "aten::nonzero",
                                   "aten::masked_select",
                                   "aten::equal",
                                   "aten::allclose",
                                   "aten::bincount",
                                   "aten::_unique2",
                                   "aten::nonzero_numpy",
                                   "aten::repeat_interleave"};

std::set<std::string> reads_seen;

// As long as it lives, this thread's operators that read are put into reads_seen.
class ReadRecorder {
 public:
  ReadRecorder() {
    reads_seen.clear();
    handle_ = at::addThreadLocalCallback(
        at::RecordFunctionCallback([](const at::RecordFunction& function) {
          if (kReads.count(function.name())) reads_seen.insert(function.name());
          return std::unique_ptr<at::ObserverContext>();
        }).scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  }
  ~ReadRecorder() { at::removeCallback(handle_); }
  ReadRecorder(const ReadRecorder&) = delete;
  ReadRecorder& operator=(const ReadRecorder&) = delete;

 private:
  at::CallbackHandle handle_;
};

TEST(PolicyHostReads, AreNoticedByThisTest) {
  const ReadRecorder recorder;
  static_cast<void>(at::ones({2}).sum().item<float>());
  EXPECT_EQ(reads_seen.count("aten::item"), 1u);
}

TEST(PolicyHostReads, AreNoneFromTheMasksToTheDiagnosticsOfAnUpdate) {
  const at::TensorOptions floats = at::TensorOptions(at::kFloat);
  const auto flags = [&](at::IntArrayRef sizes) { return at::zeros(sizes, floats.dtype(at::kBool)); };
  const auto numbers = [&](at::IntArrayRef sizes) { return at::zeros(sizes, floats.dtype(at::kLong)); };
  const MaskRules rules(kSpace, flags({kSpace.num_slots}), 2);
  const ActionSampler sampler(kSpace, rules.blueprints());
  const PolicyNetwork network(
      {.space = kSpace, .num_features = 5, .encoder_size = 8, .hidden_size = 6, .tensors = floats});
  Rollout rollout(network.options(), {.lanes = kLanes, .steps = kSteps});
  Ppo ppo(network, sampler, {.num_epochs = 2, .num_minibatches = 2, .sequence_length = 2});

  // What is built once may read; a step and an update may not.
  const ReadRecorder recorder;
  RecurrentState state = network.initial_state(kLanes);
  rollout.begin();
  ppo.set_progress(0.5);
  for (int64_t t = 0; t < kSteps; ++t) {
    const c10::NoGradGuard no_grad;
    const at::Tensor stage = numbers({kLanes, 2});
    const ActionMasks masks = rules.masks_of({.stage = stage,
                                              .flags = numbers({kLanes, 2}),
                                              .age_steps = numbers({kLanes, 2}),
                                              .num_seeds = testing::num_seeds_of(stage),
                                              .frozen = flags({kLanes})});
    const Observation seen{at::zeros({kLanes, 5}, floats), numbers({kLanes, 2})};
    const RecurrentState before = state;
    const NetworkOutput out = network.step(seen, state, flags({kLanes}));
    const Decision decision =
        sampler.decide(out.logits, masks, at::zeros({kLanes, kSpace.num_choices()}, floats),
                       t % 2 == 0 ? Choosing::kSample : Choosing::kLikeliest);
    rollout.store(StepDecision{seen, before, flags({kLanes}), decision, ppo.values().denormalise(out.value)});
    rollout.store(StepOutcome{.reward = at::zeros({kLanes}, floats),
                              .ended = flags({kLanes}),
                              .truncated = flags({kLanes}),
                              .bootstrap = at::zeros({kLanes}, floats),
                              .counts = flags({kLanes})});
  }
  const at::Tensor diagnostics = ppo.update(rollout);
  EXPECT_EQ(diagnostics.sizes(), std::vector<int64_t>{kNumUpdateValues});
  EXPECT_EQ(reads_seen, std::set<std::string>{});
}

TEST(PolicyHostReads, AreNoneInAnEpisodeOfActing) {
  const MaskRules rules(kSpace, at::ones({kSpace.num_slots}, at::kBool), 2);
  const ActionSampler sampler(kSpace, rules.blueprints());
  const PolicyNetwork network(
      {.space = kSpace, .num_features = num_features(kSpace.num_slots), .encoder_size = 8, .hidden_size = 6});
  const Ppo ppo(network, sampler, {});
  Acting acting(network, rules, sampler, ppo.values(), {.lanes = kLanes, .episode_length = kSteps});
  const RawObservation readings = empty_raw_observation({.lanes = kLanes, .space = kSpace});
  const at::Tensor lost = at::zeros({kLanes}, at::kBool);
  std::vector<std::unique_ptr<RewardAccount>> accounts;
  for (const std::string_view rule : rewards().names())
    accounts.push_back(std::make_unique<RewardAccount>(
        std::string(rule), RewardFrame{.lanes = kLanes, .slots = kSpace.num_slots}));

  const ReadRecorder recorder;
  for (const ActingMode mode : {ActingMode::kLearning, ActingMode::kSampling, ActingMode::kLikeliest}) {
    acting.begin(3, mode);
    for (const auto& account : accounts) account->begin();
    for (int64_t t = 0; t < kSteps; ++t) {
      for (const auto& account : accounts)
        account->add(readings, acting.actions().select(1, 0), lost,
                     t == 0            ? EpisodePart::kFirst
                     : t + 1 == kSteps ? EpisodePart::kLast
                                       : EpisodePart::kMiddle);
      acting.act(readings, accounts.front()->frozen());
      acting.finish_step(accounts.front()->reward());
    }
  }
  EXPECT_EQ(reads_seen, std::set<std::string>{});
}

}  // namespace
}  // namespace espalier::policy
