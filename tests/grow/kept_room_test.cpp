// Room that seeds leave behind costs time and memory, and changes nothing else.
#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <sstream>

#include "espalier/grow/network_stack.h"
#include "tests/grow/grown_stack.h"

namespace espalier::grow {
namespace {

using lanes::testing::expect_same_bits;
using testing::copy_of_lane;
using testing::expect_same_lane;
using testing::gradients_of_lane;
using testing::images_for;
using testing::randomise_seeds;
using testing::run_step;
using testing::seed_in;
using testing::States;
using testing::two_blocks;

constexpr int32_t kNorm = 1, kConvSmall = 5, kConvLight = 6, kNumBlueprints = 8;
constexpr int64_t kLanes = 5, kSlots = 3;

enum class Room { kNeeded, kKept };

struct Grown {
  explicit Grown(Room room, at::ScalarType compute = at::kFloat)
      : population(two_blocks(kLanes), BlueprintRegistry(), at::kCPU, compute), states(kLanes, kSlots) {
    if (room == Room::kKept) population.keep_room();
  }
  GrowthReport apply() { return population.apply(states.all); }
  void plant(int64_t lane, int64_t slot, int32_t blueprint, BlendOperator blend = BlendOperator::kAdd) {
    const int32_t number = states.at(lane, slot).num_seeds + 1;
    states.at(lane, slot) = seed_in(SeedStage::kHolding, blueprint, 0.5f, blend);
    states.at(lane, slot).num_seeds = number;
  }
  void prune(int64_t lane, int64_t slot) {
    states.at(lane, slot) = {.stage = SeedStage::kPruned, .num_seeds = states.at(lane, slot).num_seeds};
  }

  NetworkStack population;
  States states;
};

// Entries of all stacks of each slot, as the signature tells them: "r0c1.conv_light x4 gated, r1c0.norm x1".
std::map<std::string, int64_t> entries_by_slot(const NetworkStack& population) {
  std::map<std::string, int64_t> entries;
  std::istringstream words(population.signature());
  std::string slot;
  for (std::string word; words >> word;) {
    if (word.find('.') != std::string::npos) slot = word.substr(0, word.find('.'));
    if (word.front() == 'x') entries[slot] += std::stoll(word.substr(1));
  }
  return entries;
}

// What nobody holds may be anything.
void poison_empty_entries(NetworkStack& population) {
  for (const ParameterGroup& group : population.groups()) {
    if (group.slot < 0) continue;
    for (int64_t entry = 0; entry < group.entries.size(0); ++entry)
      if (group.entries[entry].item<int64_t>() < 0)
        for (const lanes::NamedParameter& named : group.parameters)
          named.parameter->storage()[entry].fill_(std::numeric_limits<float>::quiet_NaN());
  }
  population.refresh();
}

void expect_same_networks(Grown& got, Grown& want, at::ScalarType compute, const std::string& what) {
  const at::Tensor x = images_for(want.population, 3, compute);
  expect_same_bits(run_step(got.population, x), run_step(want.population, x), what + ": logits");
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    const std::string here = what + ", lane " + std::to_string(lane);
    expect_same_lane(gradients_of_lane(got.population, lane), gradients_of_lane(want.population, lane),
                     here + ": gradients");
    expect_same_lane(copy_of_lane(got.population, lane), copy_of_lane(want.population, lane),
                     here + ": values");
  }
  expect_same_bits(got.population.forward(x, lanes::Mode::kEvaluate).detach(),
                   want.population.forward(x, lanes::Mode::kEvaluate).detach(), what + ": evaluated");
}

// One change of one slot of one lane: a seed comes, goes, moves on, or gets another operator.
void change(std::mt19937_64& dice, Grown& first, Grown& second) {
  const auto roll = [&](int64_t count) {
    return static_cast<int64_t>(dice() % static_cast<uint64_t>(count));
  };
  const int64_t lane = roll(kLanes), slot = roll(kSlots), act = roll(3);
  const auto blueprint = static_cast<int32_t>(roll(kNumBlueprints));
  const auto blend = static_cast<BlendOperator>(roll(kNumBlendOperators));
  const SeedStage stages[] = {SeedStage::kTraining, SeedStage::kBlending, SeedStage::kHolding};
  const SeedStage stage = stages[roll(3)];
  for (Grown* each : {&first, &second}) {
    SlotState& state = each->states.at(lane, slot);
    if (!holds_seed(state.stage)) {
      each->plant(lane, slot, blueprint, blend);
    } else if (act == 0) {
      each->prune(lane, slot);
    } else {
      state.stage = stage;
      state.blend_operator = blend;
      state.amplitude = stage == SeedStage::kTraining ? 0 : 0.25f * static_cast<float>(act);
    }
  }
}

TEST(KeptRoom, ChangesNoBitOfAnyLaneWhileSeedsComeAndGo) {
  for (const auto compute : {at::kFloat, at::kBFloat16})
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      std::mt19937_64 dice(seed);
      Grown kept(Room::kKept, compute), needed(Room::kNeeded, compute);
      int num_roomier = 0;
      for (int round = 0; round < 16; ++round) {
        for (int i = 0; i < 4; ++i) change(dice, kept, needed);
        kept.apply();
        needed.apply();
        randomise_seeds(kept.population);
        randomise_seeds(needed.population);
        poison_empty_entries(kept.population);
        expect_same_networks(kept, needed, compute, "round " + std::to_string(round));
        num_roomier += kept.population.signature() != needed.population.signature();
      }
      EXPECT_GT(num_roomier, 5) << "else nothing was compared";
    }
}

TEST(KeptRoom, KeepsTheSignatureWhenSeedsGoAndComeAgain) {
  Grown kept(Room::kKept);
  for (const int64_t lane : {0, 1, 2}) kept.plant(lane, 0, kConvLight);
  kept.plant(3, 2, kNorm, BlendOperator::kGate);
  EXPECT_TRUE(kept.apply().new_signature);
  const std::string signature = "r0c0.conv_light x4, r1c0.norm x1 gated";
  ASSERT_EQ(kept.population.signature(), signature);
  const auto expect_unchanged = [&](const std::string& what) {
    EXPECT_FALSE(kept.apply().new_signature) << what;
    EXPECT_EQ(kept.population.signature(), signature) << what;
  };
  for (const int64_t lane : {2, 0, 1}) {
    kept.prune(lane, 0);
    expect_unchanged("pruned");
  }
  kept.prune(3, 2);
  expect_unchanged("the seed with a gate is pruned");
  for (const int64_t lane : {4, 3, 2, 1}) {
    kept.plant(lane, 0, kConvLight);
    expect_unchanged("planted again");
  }
  kept.plant(0, 2, kNorm);
  expect_unchanged("planted again, without a gate");
  EXPECT_TRUE(kept.population.has_stacks(0));
  EXPECT_FALSE(kept.population.has_stacks(1));
}

TEST(KeptRoom, IsGivenBackWhereASlotWouldHaveMoreThanTwiceTheLanes) {
  Grown kept(Room::kKept);
  const auto replace_all = [&](int32_t blueprint, BlendOperator blend = BlendOperator::kAdd) {
    for (int64_t lane = 0; lane < kLanes; ++lane) kept.plant(lane, 0, blueprint, blend);
    kept.apply();
    return kept.population.signature();
  };
  EXPECT_EQ(replace_all(kConvLight, BlendOperator::kGate), "r0c0.conv_light x5 gated");
  EXPECT_EQ(replace_all(kConvSmall), "r0c0.conv_small x5, r0c0.conv_light x5 gated");
  EXPECT_EQ(replace_all(kNorm), "r0c0.norm x5");
  EXPECT_EQ(replace_all(kConvLight), "r0c0.norm x5, r0c0.conv_light x5");
}

// Seeds keep their entries for life, so stacks whose last entries are in use may need more than that.
TEST(KeptRoom, IsNeededBeyondTwiceTheLanesWhereSeedsLieHighInTheirStacks) {
  Grown kept(Room::kKept), needed(Room::kNeeded);
  for (Grown* each : {&kept, &needed})
    for (int32_t round = 0; round < 5; ++round) {  // the last lane of every round stays where it is
      for (int64_t lane = 0; lane < kLanes - round; ++lane) each->plant(lane, 0, kNorm + round);
      each->apply();
    }
  EXPECT_EQ(needed.population.signature(),
            "r0c0.norm x5, r0c0.attention x4, r0c0.depthwise x4, r0c0.bottleneck x2, r0c0.conv_small x1");
  EXPECT_EQ(kept.population.signature(), needed.population.signature());
}

TEST(KeptRoom, NeverTakesMoreThanTwiceTheLanesOrWhatIsNeeded) {
  bool was_given_back = false;
  for (const uint64_t seed : {4, 5, 6, 7}) {
    std::mt19937_64 dice(seed);
    Grown kept(Room::kKept), needed(Room::kNeeded);
    std::map<std::string, int64_t> before;
    for (int round = 0; round < 200; ++round) {
      change(dice, kept, needed);
      kept.apply();
      needed.apply();
      const auto with = entries_by_slot(kept.population), without = entries_by_slot(needed.population);
      for (const auto& [slot, entries] : with) {
        const int64_t least = without.contains(slot) ? without.at(slot) : 0;
        EXPECT_GE(entries, least);
        EXPECT_LE(entries, std::max(2 * kLanes, least))
            << "seed " << seed << " round " << round << " " << slot;
        was_given_back |= before[slot] > entries;
      }
      before = with;
    }
  }
  EXPECT_TRUE(was_given_back) << "else the limit was never met";
}

TEST(KeptRoom, LetsLanesPassASlotThatIsEmptyAgainUntouched) {
  for (const auto compute : {at::kFloat, at::kBFloat16}) {
    Grown emptied(Room::kKept, compute), bare(Room::kNeeded, compute);
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      emptied.plant(lane, 0, kConvLight, BlendOperator::kGate);
      emptied.plant(lane, 2, kNorm, BlendOperator::kMultiply);
    }
    emptied.apply();
    randomise_seeds(emptied.population);
    for (int64_t lane = 0; lane < kLanes; ++lane)
      for (const int64_t slot : {0, 2}) emptied.prune(lane, slot);
    emptied.apply();
    bare.apply();
    ASSERT_EQ(emptied.population.signature(), "r0c0.conv_light x5 gated, r1c0.norm x5");
    poison_empty_entries(emptied.population);
    expect_same_networks(emptied, bare, compute, "emptied");
    // Beside it, where all slots with room are asked about.
    const at::Tensor x = images_for(bare.population, 3, compute);
    expect_same_bits(emptied.population.forward_without_each(x, std::vector<int64_t>{0, 2}).whole.detach(),
                     bare.population.forward(x, lanes::Mode::kEvaluate).detach(), "the whole");
  }
}

}  // namespace
}  // namespace espalier::grow
