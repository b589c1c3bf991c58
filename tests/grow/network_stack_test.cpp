#include "espalier/grow/network_stack.h"

#include "espalier/core/error.h"
#include "espalier/grow/blend/gate.h"
#include "tests/grow/grown_stack.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using lanes::testing::distance;
using lanes::testing::expect_same_bits;
using lanes::testing::largest;
using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::gradients_of_lane;
using testing::images_for;
using testing::randomise_seeds;
using testing::run_step;
using testing::seed_in;
using testing::States;
using testing::two_blocks;
using testing::Values;

enum Slots : int64_t { kR0c0 = 0, kR0c1 = 1, kR1c0 = 2 };
enum Kinds : int32_t {
  kNoop,
  kNorm,
  kAttention,
  kDepthwise,
  kBottleneck,
  kConvSmall,
  kConvLight,
  kConvHeavy
};

struct Grown {
  explicit Grown(int64_t lanes, at::ScalarType compute = at::kFloat, CnnHostOptions options = two_blocks(1))
      : population((options.lanes = lanes, options), BlueprintRegistry(), at::kCPU, compute),
        states(lanes, population.num_slots()) {}
  GrowthReport apply() { return population.apply(states.all); }

  NetworkStack population;
  States states;
};

// Every blueprint, operator and stage somewhere.
void grow_everything(States& states) {
  states.at(0, kR0c0) = seed_in(SeedStage::kTraining, kConvLight);
  states.at(0, kR0c1) = seed_in(SeedStage::kHolding, kNorm, 0.7f);
  states.at(0, kR1c0) = seed_in(SeedStage::kFossilized, kConvHeavy, 1, BlendOperator::kGate);
  states.at(1, kR0c0) = seed_in(SeedStage::kBlending, kConvLight, 0.3f, BlendOperator::kMultiply);
  states.at(1, kR0c1) = seed_in(SeedStage::kTraining, kAttention);
  states.at(1, kR1c0) = seed_in(SeedStage::kHolding, kConvHeavy, 0.4f);
  states.at(3, kR0c0) = seed_in(SeedStage::kBlending, kDepthwise, 0.6f, BlendOperator::kGate);
  states.at(3, kR0c1) = seed_in(SeedStage::kBlending, kBottleneck, 0.2f);
  states.at(3, kR0c1).flags = kSlotRemoving;
  states.at(3, kR1c0) = seed_in(SeedStage::kHolding, kConvSmall, 1);
  states.at(4, kR0c0) = seed_in(SeedStage::kHolding, kConvLight, 0.9f, BlendOperator::kGate);
  states.at(4, kR0c1) = seed_in(SeedStage::kGerminated, kNoop);
  states.at(4, kR1c0) = seed_in(SeedStage::kBlending, kConvSmall, 0);
}

TEST(NetworkStack, EqualsPlainTorchWithSeedsInEveryStage) {
  for (const auto format : {MemoryFormat::kChannelsLast, MemoryFormat::kContiguous}) {
    CnnHostOptions options = two_blocks(5);
    options.memory_format = format;
    Grown grown(5, at::kDouble, options);
    grow_everything(grown.states);
    grown.apply();
    randomise_seeds(grown.population);
    const at::Tensor x = images_for(grown.population, 4, at::kDouble, format);
    std::vector<testing::PlainNetwork> plain;
    for (int64_t lane = 0; lane < 5; ++lane) {
      plain.push_back({.options = options,
                       .values = copy_of_lane(grown.population, lane),
                       .states = grown.states.lane(lane),
                       .kinds = BlueprintRegistry().names()});
      for (auto& [name, value] : plain.back().values)
        if (name.find("running") == std::string::npos) value.set_requires_grad(true);
    }
    const at::Tensor logits = run_step(grown.population, x);
    EXPECT_EQ(grown.population.host().entry_conversions(), 0);
    torch::manual_seed(29);
    const at::Tensor weights = at::randn({4, 4}, at::kDouble);
    for (int64_t lane = 0; lane < 5; ++lane) {
      auto& network = plain[static_cast<size_t>(lane)];
      const at::Tensor want = network.forward(x.select(0, lane));
      EXPECT_LE(distance(logits.select(0, lane), want), 1e-9 * largest(want)) << "lane " << lane;
      (want * weights).sum().backward();
      for (const auto& [name, got] : gradients_of_lane(grown.population, lane)) {
        const at::Tensor grad = network.values.at(name).grad();
        const double scale = grad.defined() ? largest(grad) : 0;
        EXPECT_LE(distance(got, grad.defined() ? grad : at::zeros_like(got)), 1e-9 * scale)
            << "lane " << lane << ": " << name;
      }
    }
  }
}

// Seeds in TRAINING are unfelt: logits and all gradients of the host are those of a bare one, bit for bit.
void expect_bare_host(Grown& grown, const std::vector<int64_t>& lanes) {
  Grown bare(grown.population.num_lanes());
  bare.apply();
  const at::Tensor x = images_for(bare.population, 4, at::kFloat);
  const at::Tensor want = run_step(bare.population, x), got = run_step(grown.population, x);
  for (const int64_t lane : lanes) {
    expect_same_bits(got.select(0, lane), want.select(0, lane), "logits of lane " + std::to_string(lane));
    const Values gradients = gradients_of_lane(grown.population, lane);
    for (const auto& [name, gradient] : gradients_of_lane(bare.population, lane))
      expect_same_bits(gradients.at(name), gradient, "lane " + std::to_string(lane) + ": " + name);
  }
}

TEST(NetworkStack, DoesNotFeelSeedsInTraining) {
  Grown grown(3);
  for (int64_t lane = 0; lane < 3; ++lane) {
    grown.states.at(lane, kR0c0) = seed_in(SeedStage::kTraining, kConvLight);
    grown.states.at(lane, kR0c1) = seed_in(SeedStage::kTraining, lane == 1 ? kAttention : kDepthwise);
    grown.states.at(lane, kR1c0) = seed_in(SeedStage::kTraining, kConvHeavy, 0, BlendOperator::kGate);
  }
  grown.apply();
  randomise_seeds(grown.population);
  expect_bare_host(grown, {0, 1, 2});
  for (const auto& [name, gradient] : gradients_of_lane(grown.population, 1))
    if (name.find("gate") == std::string::npos) {
      EXPECT_GT(largest(gradient), 0) << name;
    }
}

TEST(NetworkStack, DoesNotFeelASeedInTrainingThatIsNotFinite) {
  Grown grown(2);
  grown.states.at(1, kR0c0) = seed_in(SeedStage::kTraining, kConvLight);
  grown.apply();
  for (const NamedTensor& named : grown.population.lane_values(1))
    if (!named.name.starts_with("host.")) named.tensor.fill_(std::numeric_limits<float>::quiet_NaN());
  expect_bare_host(grown, {0, 1});
}

TEST(NetworkStack, TakesAmplitudeZeroBySelection) {
  Grown grown(2);
  for (const auto chosen : {BlendOperator::kAdd, BlendOperator::kMultiply, BlendOperator::kGate}) {
    grown.states.at(1, kR0c0) = seed_in(SeedStage::kBlending, kConvLight, 0, chosen);
    grown.states.at(1, kR0c0).num_seeds = 1 + static_cast<int>(chosen);
    grown.apply();
    for (const NamedTensor& named : grown.population.lane_values(1))
      if (!named.name.starts_with("host.")) named.tensor.fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor x = images_for(grown.population, 4, at::kFloat);
    Grown bare(2);
    expect_same_bits(run_step(grown.population, x), run_step(bare.population, x), name_of(chosen));
  }
}

TEST(NetworkStack, IsTheSameWithAFreshSeedOfAnyKindAtAnyAmplitude) {
  using enum BlendOperator;
  for (int32_t kind = kNoop; kind <= kConvHeavy; ++kind)
    for (const BlendOperator blend_operator : {kAdd, kMultiply, kGate})
      for (const float amplitude : {0.1f, 0.7f, 1.0f}) {
        SCOPED_TRACE(std::to_string(kind) + " " + name_of(blend_operator));
        Grown grown(2);
        const at::Tensor x = images_for(grown.population, 3, at::kFloat);
        const at::Tensor bare = grown.population.forward(x, lanes::Mode::kEvaluate).detach();
        for (const int64_t slot : {kR0c0, kR0c1, kR1c0})
          grown.states.at(1, slot) = seed_in(SeedStage::kHolding, kind, amplitude, blend_operator);
        grown.apply();
        const at::Tensor logits = grown.population.forward(x, lanes::Mode::kEvaluate);
        EXPECT_LE(distance(logits.detach(), bare), 1e-5 * largest(bare));
        if (kind == kNoop) continue;
        // Yet what it begins with is felt: a gradient reaches it.
        double most = 0;
        for (const auto& group : grown.population.groups()) {
          if (group.slot < 0 || group.name.ends_with(".gate")) continue;
          std::vector<at::Tensor> leaves;
          for (const auto& named : group.parameters) leaves.push_back(named.parameter->value());
          for (const at::Tensor& grad :
               torch::autograd::grad({logits.square().sum()}, leaves, {}, true, false, true))
            if (grad.defined()) most = std::max(most, largest(grad));
        }
        EXPECT_GT(most, 0);
      }
}

TEST(NetworkStack, PassesLanesWithoutASeedUntouched) {
  Grown grown(4);
  grown.states.at(1, kR0c0) = seed_in(SeedStage::kHolding, kConvLight, 0.8f);
  grown.states.at(3, kR0c0) = seed_in(SeedStage::kHolding, kAttention, 0.8f, BlendOperator::kMultiply);
  grown.states.at(3, kR0c1) = seed_in(SeedStage::kFossilized, kConvHeavy, 1, BlendOperator::kGate);
  grown.apply();
  randomise_seeds(grown.population);
  expect_bare_host(grown, {0, 2});
}

TEST(NetworkStack, GivesALaneTheBitsItHasAlone) {
  Grown many(5);
  grow_everything(many.states);
  many.apply();
  randomise_seeds(many.population);
  const at::Tensor x = images_for(many.population, 3, at::kFloat);
  std::vector<Values> before;
  for (int64_t lane = 0; lane < 5; ++lane) before.push_back(copy_of_lane(many.population, lane));
  const at::Tensor logits = run_step(many.population, x);
  for (int64_t lane = 0; lane < 5; ++lane) {
    Grown alone(1);
    alone.states.all = many.states.lane(lane);
    alone.apply();
    for (const NamedTensor& named : alone.population.lane_values(0))
      named.tensor.copy_(before[static_cast<size_t>(lane)].at(named.name));
    alone.population.refresh();
    const at::Tensor own = lanes::testing::stacked_copy(x.slice(0, lane, lane + 1), at::kFloat);
    expect_same_bits(run_step(alone.population, own).select(0, 0), logits.select(0, lane), "logits");
    const Values among = gradients_of_lane(many.population, lane);
    for (const auto& [name, gradient] : gradients_of_lane(alone.population, 0))
      expect_same_bits(among.at(name), gradient, "lane " + std::to_string(lane) + ": " + name);
  }
}

TEST(NetworkStack, KeepsANaNOfOneLaneFromTheOthers) {
  Grown grown(5), same(5);
  for (Grown* each : {&grown, &same}) {
    grow_everything(each->states);
    each->apply();
    randomise_seeds(each->population);
  }
  for (const NamedTensor& named : grown.population.lane_values(1))
    named.tensor.fill_(std::numeric_limits<float>::quiet_NaN());
  const at::Tensor x = images_for(grown.population, 3, at::kFloat);
  const at::Tensor got = run_step(grown.population, x), want = run_step(same.population, x);
  for (const int64_t lane : {0, 2, 3, 4}) {
    expect_same_bits(got.select(0, lane), want.select(0, lane), "logits");
    expect_same_lane(gradients_of_lane(grown.population, lane), gradients_of_lane(same.population, lane),
                     "lane " + std::to_string(lane));
  }
}

// Seeds in all slots of all lanes; those in `silenced` have no amplitude, -1: all have one.
void seed_everywhere(Grown& grown, int64_t silenced) {
  for (int64_t lane = 0; lane < 3; ++lane)
    for (const int64_t slot : {kR0c0, kR0c1, kR1c0})
      grown.states.at(lane, slot) =
          seed_in(SeedStage::kHolding, lane == 2 ? kConvSmall : kConvLight, slot == silenced ? 0 : 0.5f);
  grown.apply();
  randomise_seeds(grown.population);  // fresh ones are the identity: leaving them out changes nothing
}

at::Tensor logits_with_silenced(int64_t slot, const at::Tensor& x) {
  Grown grown(3);
  seed_everywhere(grown, slot);
  return grown.population.forward(x, lanes::Mode::kEvaluate).detach();
}

TEST(NetworkStack, LeavesOutSlotAfterSlotBesideTheWhole) {
  Grown grown(3);
  seed_everywhere(grown, -1);
  const at::Tensor x = images_for(grown.population, 4, at::kFloat);
  const at::Tensor whole = logits_with_silenced(-1, x);
  for (const std::vector<int64_t>& slots :
       {std::vector<int64_t>{}, {kR0c1}, {kR1c0, kR0c0}, {kR0c0, kR0c1, kR1c0}}) {
    SCOPED_TRACE(c10::Join(",", slots));
    const HostBranches got = grown.population.forward_without_each(x, slots);
    expect_same_bits(got.whole.detach(), whole, "whole");
    ASSERT_EQ(got.without.size(), slots.size());
    for (size_t i = 0; i < slots.size(); ++i) {
      expect_same_bits(got.without[i].detach(), logits_with_silenced(slots[i], x), "without");
      EXPECT_FALSE(at::equal(got.without[i], whole));
    }
  }
  // Lanes that hold no seed there are not computed once more; those that do are, as before.
  Grown some(3), silenced(3);
  for (Grown* each : {&some, &silenced})
    for (const int64_t lane : {0, 2})
      each->states.at(lane, kR0c1) = seed_in(SeedStage::kHolding, kConvLight, each == &some ? 0.5f : 0);
  for (Grown* each : {&some, &silenced}) {
    each->apply();
    randomise_seeds(each->population);
  }
  const HostBranches few = some.population.forward_without_each(x, std::vector<int64_t>{kR0c1});
  const at::Tensor want = silenced.population.forward(x, lanes::Mode::kEvaluate).detach();
  for (const int64_t lane : {0, 2}) {
    expect_same_bits(few.without[0].detach().select(0, lane), want.select(0, lane), "few");
    EXPECT_FALSE(at::equal(few.without[0].select(0, lane), few.whole.select(0, lane)));
  }
  // Where nothing grows, nothing is left out.
  Grown bare(3);
  const HostBranches got = bare.population.forward_without_each(x, std::vector<int64_t>{kR0c0});
  expect_same_bits(got.without[0].detach(), got.whole.detach(), "bare");
}

TEST(NetworkStack, LearnsUnderAUsersBlueprint) {
  // Twice its input, with a factor of its own.
  class Twice final : public SeedModule {
   public:
    explicit Twice(const SeedBuild& build) : factor_({build.entries, 1}, build.options, at::kFloat) {}
    at::Tensor forward(const at::Tensor& x, lanes::Mode /*mode*/) override {
      return x * factor_.value().view({-1, 1, 1, 1, 1});
    }
    std::vector<lanes::NamedParameter> parameters() override { return {{"factor", &factor_}}; }
    void initialise(const SeedInit& init) override { init.fill({"factor", &factor_}, 2); }

   private:
    lanes::LaneParameter factor_;
  };
  BlueprintRegistry registry;
  const int32_t twice = registry.add({.name = "twice",
                                      .num_parameters = [](const SeedShape&) { return int64_t{1}; },
                                      .make = [](const SeedBuild& build) -> std::unique_ptr<SeedModule> {
                                        return std::make_unique<Twice>(build);
                                      }});
  const int32_t liar = registry.add({.name = "liar",
                                     .num_parameters = [](const SeedShape&) { return int64_t{9}; },
                                     .make = registry.at(twice).make});
  NetworkStack population(two_blocks(2), registry, at::kCPU, at::kFloat);
  States states(2, 3);
  states.at(1, kR1c0) = seed_in(SeedStage::kTraining, twice);
  population.apply(states.all);
  EXPECT_EQ(population.signature(), "r1c0.twice x1");
  run_step(population, images_for(population, 4, at::kFloat));
  EXPECT_GT(largest(gradients_of_lane(population, 1).at("r1c0.twice.factor")), 0);
  states.at(0, kR0c0) = seed_in(SeedStage::kTraining, liar);
  EXPECT_ERROR(population.apply(states.all), UsageError, "'liar'", "9 parameters", "got 1");
}

TEST(NetworkStack, RefusesABlueprintThatWritesToItsInput) {
  class InPlace final : public SeedModule {
   public:
    at::Tensor forward(const at::Tensor& x, lanes::Mode /*mode*/) override { return x.detach().mul_(2); }
    std::vector<lanes::NamedParameter> parameters() override { return {}; }
    void initialise(const SeedInit& /*init*/) override {}
  };
  BlueprintRegistry registry;
  const int32_t in_place = registry.add(
      {.name = "in_place",
       .num_parameters = [](const SeedShape&) { return int64_t{0}; },
       .make = [](const SeedBuild&) -> std::unique_ptr<SeedModule> { return std::make_unique<InPlace>(); }});
  NetworkStack population(two_blocks(2), registry, at::kCPU, at::kFloat);
  States states(2, 3);
  states.at(1, kR1c0) = seed_in(SeedStage::kTraining, in_place);
  population.apply(states.all);
  EXPECT_ERROR(population.forward(images_for(population, 4, at::kFloat), lanes::Mode::kTrain), c10::Error,
               "r1c0.in_place", "writes to x");
}

}  // namespace
}  // namespace espalier::grow
