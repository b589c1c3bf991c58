#include "espalier/core/error.h"
#include "espalier/grow/blend/gate.h"
#include "espalier/grow/lifecycle.h"
#include "espalier/grow/network_stack.h"
#include "espalier/lanes/optim/optimizer.h"
#include "tests/grow/grown.h"
#include "tests/grow/grown_stack.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using lanes::testing::expect_same_bits;
using lanes::testing::largest;
using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::images_for;
using testing::run_step;
using testing::seed_in;
using testing::States;
using testing::two_blocks;
using testing::Values;

constexpr int32_t kNorm = 1, kConvSmall = 5, kConvLight = 6;

struct Grown {
  explicit Grown(int64_t lanes, at::ScalarType compute = at::kFloat)
      : population(two_blocks(lanes), BlueprintRegistry(), at::kCPU, compute), states(lanes, 3) {}
  GrowthReport apply() { return population.apply(states.all); }
  // Holds a seed in r0c0 from now on.
  void plant(int64_t lane, int32_t blueprint = kConvLight) {
    const int32_t number = states.at(lane, 0).num_seeds + 1;
    states.at(lane, 0) = seed_in(SeedStage::kTraining, blueprint);
    states.at(lane, 0).num_seeds = number;
  }
  void prune(int64_t lane) {
    states.at(lane, 0) = {.stage = SeedStage::kPruned, .num_seeds = states.at(lane, 0).num_seeds};
  }

  NetworkStack population;
  States states;
};

ParameterGroup group_named(NetworkStack& population, const std::string& name) {
  for (const ParameterGroup& group : population.groups())
    if (group.name == name) return group;
  ADD_FAILURE() << "no group " << name;
  return {};
}

TEST(NetworkStackGrowth, CostsNothingWhereNothingGrows) {
  Grown grown(4);
  EXPECT_FALSE(grown.apply().new_signature);
  EXPECT_EQ(grown.population.signature(), "");
  ASSERT_EQ(grown.population.groups().size(), 1u);
  EXPECT_EQ(grown.population.groups()[0].name, "host");
  EXPECT_EQ(grown.population.num_parameters(2), num_parameters(two_blocks(4)));
}

TEST(NetworkStackGrowth, DoublesTheCapacityAndNeverMovesTheStorage) {
  Grown grown(6);
  std::vector<std::string> signatures;
  std::vector<const void*> addresses;
  for (int64_t lane = 5; lane >= 0; --lane) {
    grown.plant(lane);
    const GrowthReport report = grown.apply();
    ASSERT_EQ(report.planted.size(), 1u);
    EXPECT_EQ(report.planted[0].lane, lane);
    EXPECT_EQ(report.planted[0].entry, 5 - lane);
    EXPECT_EQ(report.planted[0].group, "r0c0.conv_light");
    signatures.push_back(grown.population.signature());
    EXPECT_EQ(report.new_signature, lane == 5 || signatures[signatures.size() - 2] != signatures.back());
    const ParameterGroup group = group_named(grown.population, "r0c0.conv_light");
    const std::vector<const void*> now{group.entries.data_ptr(), group.frozen.data_ptr(),
                                       group.parameters[0].parameter->value().data_ptr(),
                                       group.parameters[0].parameter->gradient().data_ptr()};
    if (addresses.empty()) addresses = now;
    EXPECT_EQ(now, addresses);
    EXPECT_EQ(group.entries.size(0), group.parameters[0].parameter->value().size(0));
  }
  EXPECT_EQ(signatures,
            (std::vector<std::string>{"r0c0.conv_light x1", "r0c0.conv_light x2", "r0c0.conv_light x4",
                                      "r0c0.conv_light x4", "r0c0.conv_light x6", "r0c0.conv_light x6"}));
}

TEST(NetworkStackGrowth, GivesFreedEntriesToTheNextAndShrinksToTheLastInUse) {
  Grown grown(6);
  for (const int64_t lane : {0, 1, 2, 3, 4}) grown.plant(lane);
  grown.apply();
  EXPECT_EQ(grown.population.signature(), "r0c0.conv_light x6");
  grown.prune(1);
  const GrowthReport report = grown.apply();
  ASSERT_EQ(report.released.size(), 1u);
  EXPECT_EQ(report.released[0].entry, 1);
  EXPECT_FALSE(report.new_signature);
  EXPECT_EQ(group_named(grown.population, "r0c0.conv_light").entry_lanes,
            (std::vector<int64_t>{0, -1, 2, 3, 4, -1}));
  grown.plant(5);
  EXPECT_EQ(grown.apply().planted[0].entry, 1);
  for (const int64_t lane : {2, 3, 4}) grown.prune(lane);
  grown.apply();
  EXPECT_EQ(grown.population.signature(), "r0c0.conv_light x2");
  for (const int64_t lane : {0, 5}) grown.prune(lane);
  EXPECT_TRUE(grown.apply().new_signature);
  EXPECT_EQ(grown.population.signature(), "");
}

TEST(NetworkStackGrowth, LeavesOtherLanesBitForBitWhenOneGrows) {
  Grown grown(5, at::kBFloat16);
  for (const int64_t lane : {0, 2}) grown.plant(lane);
  grown.apply();
  run_step(grown.population, images_for(grown.population, 3, at::kBFloat16));
  const auto others = [&] {
    std::vector<Values> values;
    for (const int64_t lane : {0, 2, 3, 4}) values.push_back(copy_of_lane(grown.population, lane));
    return values;
  };
  const std::vector<Values> before = others();
  const auto expect_unchanged = [&](const std::string& what) {
    grown.apply();
    const std::vector<Values> now = others();
    for (size_t i = 0; i < before.size(); ++i) expect_same_lane(now[i], before[i], what);
  };
  grown.plant(1);
  expect_unchanged("germinated");
  grown.states.at(1, 0).stage = SeedStage::kFossilized;
  grown.states.at(1, 0).amplitude = 1;
  expect_unchanged("fossilised");
  grown.prune(1);
  expect_unchanged("pruned");
  grown.plant(1, kNorm);
  expect_unchanged("another blueprint");
}

TEST(NetworkStackGrowth, GivesASeedTheSameValuesAmongFewAndMany) {
  Grown few(8), many(128);
  few.plant(3);
  for (int64_t lane = 0; lane < 128; lane += 2) many.plant(lane);
  many.apply();
  many.plant(3);
  few.apply();
  many.apply();
  expect_same_lane(copy_of_lane(few.population, 3), copy_of_lane(many.population, 3), "lane 3");
  few.prune(3);
  few.apply();
  few.plant(3);
  few.apply();
  EXPECT_FALSE(at::equal(copy_of_lane(few.population, 3).at("r0c0.conv_light.conv.weight"),
                         copy_of_lane(many.population, 3).at("r0c0.conv_light.conv.weight")))
      << "the second seed of a slot is another";
}

TEST(NetworkStackGrowth, ReplacesASeedThatWasPrunedAndGerminatedBetweenTwoLooks) {
  Grown grown(2);
  grown.plant(0);
  grown.apply();
  const Values first = copy_of_lane(grown.population, 0);
  EXPECT_TRUE(grown.apply().planted.empty());
  grown.plant(0);  // number 2
  const GrowthReport report = grown.apply();
  EXPECT_EQ(report.released.size(), 1u);
  EXPECT_EQ(report.planted.size(), 1u);
  EXPECT_FALSE(at::equal(copy_of_lane(grown.population, 0).at("r0c0.conv_light.conv.weight"),
                         first.at("r0c0.conv_light.conv.weight")));
}

TEST(NetworkStackGrowth, FreezesWhatIsNotToLearn) {
  Grown grown(5);
  for (int64_t lane = 0; lane < 5; ++lane) grown.plant(lane);
  grown.states.at(0, 0).stage = SeedStage::kGerminated;
  grown.states.at(1, 0) = seed_in(SeedStage::kBlending, kConvLight, 0.5f, BlendOperator::kGate);
  grown.states.at(1, 0).flags = kSlotRemoving;
  grown.states.at(2, 0) = seed_in(SeedStage::kHolding, kConvLight, 1, BlendOperator::kGate);
  grown.states.at(3, 0) = seed_in(SeedStage::kTraining, kConvLight, 0, BlendOperator::kGate);
  grown.apply();
  grown.prune(4);
  grown.plant(4, kConvSmall);
  grown.apply();
  const auto frozen = [&](const std::string& name) {
    const at::Tensor flags = group_named(grown.population, name).frozen;
    return std::vector<bool>(flags.data_ptr<bool>(), flags.data_ptr<bool>() + flags.size(0));
  };
  EXPECT_EQ(grown.population.signature(), "r0c0.conv_small x1, r0c0.conv_light x4 gated");
  EXPECT_EQ(frozen("r0c0.conv_light"), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(frozen("r0c0.conv_light.gate"), (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(frozen("r0c0.conv_small"), (std::vector<bool>{false}));
}

TEST(NetworkStackGrowth, PassesGradientsThroughASeedThatIsBeingRemoved) {
  Grown grown(1), holding(1);
  for (Grown* each : {&grown, &holding}) {
    each->states.at(0, 0) = seed_in(SeedStage::kBlending, kConvLight, 0.5f);
    each->apply();
  }
  grown.states.at(0, 0).flags = kSlotRemoving;
  grown.apply();
  const at::Tensor x = images_for(grown.population, 4, at::kFloat);
  expect_same_bits(run_step(grown.population, x), run_step(holding.population, x), "logits");
  expect_same_lane(testing::gradients_of_lane(grown.population, 0),
                   testing::gradients_of_lane(holding.population, 0), "gradients");
}

TEST(NetworkStackGrowth, ChangesAmplitudesWithoutRebuildingAnything) {
  Grown grown(2);
  grown.states.at(1, 0) = seed_in(SeedStage::kBlending, kConvLight, 0.25f);
  grown.apply();
  testing::randomise_seeds(grown.population);  // a fresh seed is the identity at any amplitude
  const auto leaf = group_named(grown.population, "r0c0.conv_light").parameters[0].parameter->value();
  const at::Tensor x = images_for(grown.population, 4, at::kFloat);
  const auto evaluate = [&] { return grown.population.forward(x, lanes::Mode::kEvaluate).detach(); };
  const at::Tensor before = evaluate();
  grown.states.at(1, 0).amplitude = 0.5f;
  EXPECT_FALSE(grown.apply().new_signature);
  EXPECT_TRUE(
      group_named(grown.population, "r0c0.conv_light").parameters[0].parameter->value().is_same(leaf));
  const at::Tensor after = evaluate();
  expect_same_bits(after.select(0, 0), before.select(0, 0), "lane 0");
  EXPECT_FALSE(at::equal(after.select(0, 1), before.select(0, 1)));
}

// Every lane's weights, gradients and compute copies, from germination on and after an update.
void expect_layout(NetworkStack& population) {
  for (const ParameterGroup& group : population.groups())
    for (const auto& named : group.parameters) {
      const at::Tensor value = named.parameter->value().detach(), compute = named.parameter->compute();
      for (const at::Tensor& tensor : {value, named.parameter->gradient(), compute})
        EXPECT_EQ(tensor.strides(), lanes::empty_lanes(tensor.sizes(), tensor.options()).strides())
            << group.name << " " << named.name;
      expect_same_bits(compute, value.to(compute.scalar_type()), group.name + " " + named.name);
    }
}

TEST(NetworkStackGrowth, LaysEverythingOutChannelsLastFromGerminationOn) {
  Grown grown(4, at::kBFloat16);
  expect_layout(grown.population);
  for (int32_t blueprint = 0; blueprint < 8; ++blueprint) {
    grown.states.at(blueprint % 4, blueprint / 4) = seed_in(SeedStage::kHolding, blueprint, 0.5f);
    grown.apply();
    expect_layout(grown.population);
  }
  run_step(grown.population, images_for(grown.population, 3, at::kBFloat16));
  expect_layout(grown.population);
  for (const ParameterGroup& group : grown.population.groups()) {
    lanes::LaneSGD sgd(lanes::without_names(group.parameters), {.momentum = 0.9});
    sgd.step();
  }
  expect_layout(grown.population);
}

TEST(NetworkStackGrowth, CountsWhatGrewOnALane) {
  Grown grown(2);
  const int64_t bare = grown.population.num_parameters(0);
  grown.states.at(0, 0) = seed_in(SeedStage::kHolding, kConvLight, 0.5f);
  grown.states.at(0, 1) = seed_in(SeedStage::kHolding, kNorm, 0.5f, BlendOperator::kGate);
  grown.apply();
  EXPECT_EQ(grown.population.num_parameters(0),
            bare + (9 * 8 * 8 + 16) + (2 * 16 + 1) + BlendGate::num_parameters(16));
  EXPECT_EQ(grown.population.num_parameters(1), bare);
}

TEST(NetworkStackGrowth, FollowsALifecycleThroughAWholeLife) {
  Grown grown(2);
  Lifecycle life({.lanes = 2, .slots = {"r0c0", "r0c1", "r1c0"}, .num_blueprints = 8, .embargo_steps = 1});
  const at::Tensor x = images_for(grown.population, 4, at::kFloat);
  std::vector<std::string> signatures;
  const auto epoch = [&] {
    life.begin_epoch();
    grown.population.apply(life.states());
    run_step(grown.population, x);
    signatures.push_back(grown.population.signature());
  };
  ASSERT_TRUE(life.germinate(1, 2, testing::conv()).passed());
  for (int i = 0; i < 3; ++i) epoch();
  ASSERT_TRUE(life.advance(1, 2, testing::healthy()).passed());
  for (int i = 0; i < 3; ++i) epoch();
  ASSERT_TRUE(life.advance(1, 2, testing::healthy()).passed());
  epoch();
  life.prune(1, 2, {.steps = 2});
  for (int i = 0; i < 4; ++i) epoch();
  // Both epochs of the removal feel it: in the second it arrives at 0, batch by batch.
  for (size_t i = 0; i < 9; ++i) EXPECT_EQ(signatures[i], "r1c0.conv_light x1") << i;
  for (size_t i = 9; i < signatures.size(); ++i) EXPECT_EQ(signatures[i], "") << i;
}

TEST(NetworkStackGrowth, RefusesStatesThatItCannotHold) {
  Grown grown(2);
  EXPECT_ERROR(grown.population.apply(std::span(grown.states.all).first(5)), UsageError, "2 lanes x 3 slots",
               "5");
  grown.plant(0);
  grown.states.at(1, 1) = seed_in(SeedStage::kTraining, 8);
  EXPECT_ERROR(grown.apply(), UsageError, "blueprint", "0 to 7", "8");
  EXPECT_EQ(grown.population.signature(), "");
}

}  // namespace
}  // namespace espalier::grow
