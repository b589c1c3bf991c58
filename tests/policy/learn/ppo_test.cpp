#include "espalier/policy/learn/ppo.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/policy/num_seeds.h"
#include "tests/policy/tensors.h"
#include "tests/support/message.h"

namespace espalier::policy {
namespace {

using testing::bools;
using testing::doubles;

constexpr ActionSpace kSpace{.num_slots = 2, .num_blueprints = 3};
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double number(const at::Tensor& tensor) {
  return tensor.item<double>();
}

NetworkOptions tiny(at::ScalarType type) {
  return {.space = kSpace,
          .num_features = 4,
          .encoder_size = 7,
          .hidden_size = 5,
          .seed = 8,
          .tensors = at::TensorOptions(type)};
}

struct Player {
  explicit Player(const NetworkOptions& options, const RolloutShape& shape)
      : rules(kSpace, at::ones({2}, at::kBool), 2),
        sampler(kSpace, rules.blueprints()),
        network(options),
        rollout(options, shape) {}

  // Random observations, rewards and ends; the actions are the network's own.
  void play(uint64_t seed) {
    torch::manual_seed(seed);
    const c10::NoGradGuard no_grad;
    const int64_t lanes = rollout.lanes();
    const auto type = network.options().tensors;
    RecurrentState state = network.initial_state(lanes);
    at::Tensor clears = at::zeros({lanes}, at::kBool), frozen = at::zeros({lanes}, at::kBool);
    rollout.begin();
    for (int64_t t = 0; t < rollout.steps(); ++t) {
      const Observation seen{at::randn({lanes, 4}, type), at::randint(-1, 3, {lanes, 2}, at::kLong)};
      const at::Tensor stage =
          at::tensor({0, 3, 4, 5}, at::kLong).index({at::randint(4, {lanes, 2}, at::kLong)});
      const ActionMasks masks = rules.masks_of({.stage = stage,
                                                .flags = at::zeros({lanes, 2}, at::kLong),
                                                .age_steps = at::ones({lanes, 2}, at::kLong),
                                                .num_seeds = testing::num_seeds_of(stage)});
      const RecurrentState before = state;
      const NetworkOutput out = network.step(seen, state, clears);
      const Decision decision =
          sampler.decide(out.logits, masks, at::rand({lanes, kSpace.num_choices()}), Choosing::kSample);
      rollout.store(StepDecision{seen, before, clears, decision, out.value});
      const at::Tensor ended = at::rand({lanes}) < 0.15, truncated = at::rand({lanes}) < 0.15;
      rollout.store(StepOutcome{.reward = at::randn({lanes}, type) * 3 + 5,
                                .ended = ended,
                                .truncated = truncated,
                                .bootstrap = at::randn({lanes}, type),
                                .counts = frozen.logical_not()});
      frozen = ended;  // one step, so that there are some that do not count
      clears = ended | truncated;
    }
  }

  std::vector<at::Tensor> parameters() const {
    std::vector<at::Tensor> copies;
    for (const NamedTensor& named : network.parameters()) copies.push_back(named.tensor.detach().clone());
    return copies;
  }

  MaskRules rules;
  ActionSampler sampler;
  PolicyNetwork network;
  Rollout rollout;
};

bool all_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const at::Tensor& x, const at::Tensor& y) { return at::equal(x, y); });
}

// One update written plainly: a step at a time, a lane at a time, with torch's Adam and torch's clipping.
void update_plainly(Player& player, const PpoOptions& options) {
  const Rollout& rollout = player.rollout;
  const PolicyNetwork& network = player.network;
  const int64_t lanes = rollout.lanes(), steps = rollout.steps(), length = options.sequence_length;
  at::Tensor advantages = at::zeros({lanes, steps}, at::kDouble);
  std::vector<double> counted_returns, counted_advantages;
  for (int64_t l = 0; l < lanes; ++l) {
    double later = 0;
    for (int64_t t = steps - 1; t >= 0; --t) {
      const bool ended = rollout.ended[l][t].item<bool>(), cut = rollout.truncated[l][t].item<bool>();
      double next =
          t + 1 == steps || cut ? number(rollout.bootstrap[l][t]) : number(rollout.values[l][t + 1]);
      if (ended) next = 0;
      if (ended || cut) later = 0;
      later = number(rollout.rewards[l][t]) + options.gae.gamma * next - number(rollout.values[l][t]) +
              options.gae.gamma * options.gae.lambda * later;
      advantages[l][t] = later;
      if (!rollout.counts[l][t].item<bool>()) continue;
      counted_advantages.push_back(later);
      counted_returns.push_back(later + number(rollout.values[l][t]));
    }
  }
  const auto moments = [](const std::vector<double>& x) {
    const at::Tensor all = doubles(x);
    return std::pair{number(all.mean()), number(all.std(/*unbiased=*/false))};
  };
  const auto [mean, deviation] = moments(counted_returns);
  const auto [advantage_mean, advantage_deviation] = moments(counted_advantages);
  {
    const c10::NoGradGuard no_grad;  // the value head in the new units
    network.value_weight().div_(deviation);
    network.value_bias().sub_(mean).div_(deviation);
  }
  std::vector<at::Tensor> parameters;
  for (const NamedTensor& named : network.parameters()) parameters.push_back(named.tensor);
  torch::optim::Adam adam(parameters, torch::optim::AdamOptions(options.adam.learning_rate).eps(1e-5));
  for (int64_t epoch = 0; epoch < options.num_epochs; ++epoch) {
    for (int64_t i = 0; i < options.num_minibatches; ++i) {
      at::Tensor sum = at::zeros({}, at::kDouble);
      double count = 0;
      const int64_t sequences = lanes * steps / length;
      for (int64_t s = (i + epoch) % options.num_minibatches; s < sequences; s += options.num_minibatches) {
        const int64_t l = s * length / steps, first = s * length % steps;
        RecurrentState state{rollout.state.hidden[l][first].unsqueeze(0),
                             rollout.state.cell[l][first].unsqueeze(0)};
        for (int64_t t = first; t < first + length; ++t) {
          const Observation seen{rollout.seen.features[l][t].unsqueeze(0),
                                 rollout.seen.blueprints[l][t].unsqueeze(0)};
          const NetworkOutput out = network.step(seen, state, rollout.clears[l][t].unsqueeze(0));
          if (!rollout.counts[l][t].item<bool>()) continue;
          ++count;
          const double a = (number(advantages[l][t]) - advantage_mean) / (advantage_deviation + 1e-8);
          const auto op = static_cast<SeedOp>(rollout.actions[l][t][0].item<int64_t>());
          for (int h = 0; h < kNumHeads; ++h) {
            const auto head = static_cast<Head>(h);
            if (!uses_head(op, head)) continue;
            at::Tensor legal = at::ones({kSpace.size(head)}, at::kBool);
            if (head == Head::kOp) legal = rollout.masks.op[l][t];
            if (head == Head::kSlot) legal = rollout.masks.slot[l][t];
            if (head == Head::kBlueprint) legal = bools({0, 1, 1});
            const at::Tensor logits = out.logits[0].narrow(0, kSpace.offset(head), kSpace.size(head));
            const at::Tensor log_probs = logits.masked_select(legal).log_softmax(0);
            const int64_t choice = rollout.actions[l][t][h].item<int64_t>();
            const int64_t place = legal.slice(0, 0, choice).sum().item<int64_t>();
            const at::Tensor ratio = (log_probs[place] - rollout.log_probs[l][t][h]).exp();
            sum = sum - at::minimum(ratio * a, ratio.clamp(0.8, 1.2) * a);
            const int64_t choices = log_probs.size(0);
            if (choices > 1)
              sum = sum + options.entropy_first[h] * (log_probs.exp() * log_probs).sum() /
                              std::log(static_cast<double>(choices));
          }
          const double target = (number(advantages[l][t] + rollout.values[l][t]) - mean) / deviation;
          const double old = (number(rollout.values[l][t]) - mean) / deviation;
          const at::Tensor near = old + (out.value[0] - old).clamp(-0.2, 0.2);
          sum = sum + options.value_coefficient * 0.5 *
                          at::maximum((out.value[0] - target).square(), (near - target).square());
        }
      }
      adam.zero_grad();
      (sum / count).backward();
      torch::nn::utils::clip_grad_norm_(parameters, options.max_gradient_norm);
      adam.step();
    }
  }
}

TEST(Ppo, UpdatesAsAPlainFloat64ReferenceDoes) {
  PpoOptions options{.num_epochs = 3, .num_minibatches = 2, .sequence_length = 3};
  options.adam.learning_rate = 0.05;  // far enough for ratios and values to be clipped
  options.target_kl = 1e9;
  for (int h = 0; h < kNumHeads; ++h) options.entropy_first[h] = 0.02 * (h + 1);
  Player ours(tiny(at::kDouble), {.lanes = 3, .steps = 9}),
      plain(tiny(at::kDouble), {.lanes = 3, .steps = 9});
  ours.play(69);
  plain.play(69);
  // Something that counts is cut off in the middle, and something does not count.
  const Rollout& played = ours.rollout;
  const at::Tensor cut = played.truncated & played.ended.logical_not() & played.counts;
  ASSERT_TRUE(cut.slice(1, 0, 8).any().item<bool>());
  ASSERT_FALSE(played.counts.all().item<bool>());
  const std::vector<at::Tensor> before = ours.parameters();
  Ppo ppo(ours.network, ours.sampler, options);
  const at::Tensor diagnostics = ppo.update(ours.rollout);
  update_plainly(plain, options);
  const std::vector<at::Tensor> got = ours.parameters(), want = plain.parameters();
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_TRUE(at::allclose(got[i], want[i], 1e-9, 1e-11)) << ours.network.parameters()[i].name;
    EXPECT_FALSE(at::equal(got[i], before[i])) << ours.network.parameters()[i].name;
  }
  EXPECT_EQ(number(diagnostics[static_cast<int>(Diagnostic::kNumUpdates)]), 6);
  EXPECT_GT(number(diagnostics[static_cast<int>(Diagnostic::kClipFrac)]), 0);
}

TEST(Ppo, StopsForGoodAtTheFirstMinibatchBeyondTheTarget) {
  PpoOptions once, many;
  once.num_epochs = 1;
  many.num_epochs = 5;
  many.target_kl = 1e-12;  // the first minibatch has 0, whatever follows has more
  Player first(tiny(at::kFloat), {.lanes = 3, .steps = 6}),
      second(tiny(at::kFloat), {.lanes = 3, .steps = 6});
  first.play(62);
  second.play(62);
  Ppo one(first.network, first.sampler, once), stopped(second.network, second.sampler, many);
  one.update(first.rollout);
  const at::Tensor diagnostics = stopped.update(second.rollout);
  EXPECT_TRUE(all_equal(first.parameters(), second.parameters()));
  for (size_t i = 0; i < one.state().size(); ++i)
    EXPECT_TRUE(at::equal(one.state()[i].tensor, stopped.state()[i].tensor)) << one.state()[i].name;
  EXPECT_EQ(number(diagnostics[static_cast<int>(Diagnostic::kNumUpdates)]), 1);
  EXPECT_GT(number(diagnostics[static_cast<int>(Diagnostic::kApproxKl)]),
            1e-12);  // that of the one that stopped it
}

TEST(Ppo, StartsEveryUpdateAtRatioOne) {
  Player player(tiny(at::kFloat), {.lanes = 4, .steps = 8});
  player.play(63);
  PpoOptions options{.num_epochs = 1, .sequence_length = 4};
  Ppo ppo(player.network, player.sampler, options);
  const at::Tensor diagnostics = ppo.update(player.rollout);
  EXPECT_NEAR(number(diagnostics[static_cast<int>(Diagnostic::kApproxKl)]), 0, 1e-6);
  EXPECT_NEAR(number(diagnostics[static_cast<int>(Diagnostic::kOldApproxKl)]), 0, 1e-6);
  EXPECT_EQ(number(diagnostics[static_cast<int>(Diagnostic::kClipFrac)]), 0);
  EXPECT_EQ(diagnostics.sizes(), std::vector<int64_t>{kNumUpdateValues});
  // Every head by itself; and the entropies of the choices that were made are those of the heads.
  double entropies = 0, uses = 0;
  for (int h = 0; h < kNumHeads; ++h) {
    const auto of = [&](HeadDiagnostic which) {
      return number(diagnostics[index_of(which, static_cast<Head>(h))]);
    };
    double used = 0;
    for (int64_t lane = 0; lane < 4; ++lane)
      for (int64_t t = 0; t < 8; ++t)
        used += player.rollout.counts[lane][t].item<bool>() &&
                uses_head(static_cast<SeedOp>(player.rollout.actions[lane][t][0].item<int64_t>()),
                          static_cast<Head>(h));
    SCOPED_TRACE(kHeadNames[static_cast<size_t>(h)]);
    EXPECT_EQ(std::isnan(of(HeadDiagnostic::kRatio)), used == 0);
    if (used == 0) continue;
    EXPECT_NEAR(of(HeadDiagnostic::kRatio), 1, 1e-5);
    EXPECT_NEAR(of(HeadDiagnostic::kApproxKl), 0, 1e-6);
    EXPECT_EQ(of(HeadDiagnostic::kClipFrac), 0);
    entropies += used * of(HeadDiagnostic::kEntropy);
    uses += used;
  }
  EXPECT_NEAR(entropies / uses, number(diagnostics[static_cast<int>(Diagnostic::kEntropy)]), 1e-5);
}

TEST(Ppo, LearnsNothingFromStepsThatDoNotCount) {
  Player clean(tiny(at::kFloat), {.lanes = 3, .steps = 8}), dirty(tiny(at::kFloat), {.lanes = 3, .steps = 8});
  clean.play(64);
  dirty.play(64);
  // From step 5 on lane 1 is frozen, after a true end.
  for (Rollout* rollout : {&clean.rollout, &dirty.rollout}) {
    rollout->ended[1][4] = true;
    rollout->counts[1].slice(0, 5).fill_(false);
  }
  dirty.rollout.rewards[1].slice(0, 5).fill_(kNan);
  dirty.rollout.log_probs[1].slice(0, 5).fill_(kNan);
  dirty.rollout.values[1].slice(0, 5).fill_(kNan);
  dirty.rollout.seen.features[1].slice(0, 5).fill_(77);
  Ppo first(clean.network, clean.sampler, {}), second(dirty.network, dirty.sampler, {});
  EXPECT_TRUE(at::allclose(first.update(clean.rollout), second.update(dirty.rollout), 1e-5, 1e-6,
                           /*equal_nan=*/true));
  const std::vector<at::Tensor> a = clean.parameters(), b = dirty.parameters();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::allclose(a[i], b[i], 1e-5, 1e-6)) << i;
}

TEST(Ppo, AnnealsTheEntropyWeights) {
  PpoOptions whole, half;
  for (int h = 0; h < kNumHeads; ++h) {
    whole.entropy_first[h] = 0.125;
    half.entropy_first[h] = 0.25;
    half.entropy_last[h] = 0;
  }
  Player first(tiny(at::kFloat), {.lanes = 2, .steps = 6}),
      second(tiny(at::kFloat), {.lanes = 2, .steps = 6});
  first.play(65);
  second.play(65);
  Ppo fixed(first.network, first.sampler, whole), annealed(second.network, second.sampler, half);
  annealed.set_progress(0.5);
  fixed.update(first.rollout);
  annealed.update(second.rollout);
  EXPECT_TRUE(all_equal(first.parameters(), second.parameters()));
  EXPECT_ERROR(fixed.set_progress(1.5), c10::Error, "progress", "1.5");
}

TEST(Ppo, StaysFiniteForOneStepOfOneLane) {
  Player player(tiny(at::kFloat), {.lanes = 1, .steps = 1});
  player.play(66);
  Ppo ppo(player.network, player.sampler, {});
  EXPECT_TRUE(ppo.update(player.rollout).slice(0, 0, kNumDiagnostics).isfinite().all().item<bool>());
  for (const at::Tensor& parameter : player.parameters())
    EXPECT_TRUE(parameter.isfinite().all().item<bool>());
}

TEST(Ppo, GivesTheSameBitsFromTheSameRound) {
  Player first(tiny(at::kFloat), {.lanes = 3, .steps = 6}),
      second(tiny(at::kFloat), {.lanes = 3, .steps = 6});
  first.play(67);
  second.play(67);
  Ppo one(first.network, first.sampler, {}), two(second.network, second.sampler, {});
  EXPECT_TRUE(at::allclose(one.update(first.rollout), two.update(second.rollout), 0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(all_equal(first.parameters(), second.parameters()));
}

TEST(Ppo, NamesTheOptionThatDoesNotFit) {
  Player player(tiny(at::kFloat), {.lanes = 2, .steps = 6});
  player.play(68);
  Ppo uneven(player.network, player.sampler, {.sequence_length = 4});
  EXPECT_ERROR(uneven.update(player.rollout), c10::Error, "sequence_length", "6", "4");
  Ppo many(player.network, player.sampler, {.num_minibatches = 3});
  EXPECT_ERROR(many.update(player.rollout), c10::Error, "num_minibatches", "2", "3");
  EXPECT_ERROR(Ppo(player.network, player.sampler, {.num_epochs = 0}), c10::Error, "num_epochs", "0");
}

}  // namespace
}  // namespace espalier::policy
