#include "espalier/policy/reward/account.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <limits>
#include <vector>

#include "tests/policy/packed.h"
#include "tests/policy/tensors.h"

namespace espalier::policy {
namespace {

using testing::bools;

RawObservation with_accuracies(const at::Tensor& accuracies) {
  RawObservation epoch =
      empty_raw_observation({.lanes = accuracies.size(0), .space = {.num_slots = 1}, .device = at::kCPU});
  epoch.lanes.zero_();
  epoch.slots.fill_(std::numeric_limits<float>::quiet_NaN());
  epoch.states.zero_();
  epoch.lanes.select(1, static_cast<int64_t>(LaneReading::kValidationAccuracy)).copy_(accuracies);
  return epoch;
}

// Four epochs, the second lane lost in the second of them.
class TwoLanes {
 public:
  explicit TwoLanes(Losing losing) : account("shaped", {.lanes = 2, .slots = 1}, losing) { account.begin(); }

  void add(std::initializer_list<float> accuracies, const at::Tensor& lost, EpisodePart part) {
    account.add(with_accuracies(at::tensor(std::vector<float>(accuracies))), at::zeros({2}, at::kLong), lost,
                part, bools({0, 0}));
  }
  double reward(int64_t lane) const { return account.reward().reward()[lane].item<double>(); }

  RewardAccount account;
};

TEST(RewardAccount, EndsTheEpisodeOfALostLane) {
  TwoLanes lanes(Losing::kEndsEpisode);
  lanes.add({0.5, 0.5}, bools({0, 0}), EpisodePart::kFirst);
  lanes.add({0.6, 0.1}, bools({0, 1}), EpisodePart::kMiddle);
  EXPECT_NEAR(lanes.reward(0), 10, 1e-4);
  EXPECT_NEAR(lanes.reward(1), -1, 1e-6);
  lanes.add({0.7, 0.6}, bools({0, 0}), EpisodePart::kMiddle);
  EXPECT_EQ(lanes.reward(1), 0);
  EXPECT_TRUE(at::equal(lanes.account.frozen(), bools({0, 1})));
}

TEST(RewardAccount, LetsALaneThatGoesBackPayAndGoOnFromWhereItWas) {
  TwoLanes lanes(Losing::kGoesOn);
  lanes.add({0.5, 0.5}, bools({0, 0}), EpisodePart::kFirst);
  lanes.add({0.6, 0.1}, bools({0, 1}), EpisodePart::kMiddle);
  EXPECT_NEAR(lanes.reward(1), -1, 1e-6);
  EXPECT_TRUE(at::equal(lanes.account.frozen(), bools({0, 1}))) << "nothing may be chosen in this step";
  lanes.add({0.7, 0.55}, bools({0, 0}), EpisodePart::kMiddle);
  EXPECT_TRUE(at::equal(lanes.account.frozen(), bools({0, 0})));
  EXPECT_TRUE(lanes.account.reward().counts()[1].item<bool>());
  EXPECT_NEAR(lanes.reward(1), 5, 1e-4) << "compared with 0.5, to which it went back";
}

// A seed that was measured to contribute 4 points stands, is kept, is lost with its lane, and stands again.
TEST(RewardAccount, CreditsASeedAsBeforeWhereItsLaneGoesBack) {
  struct Want {
    const char* rule;
    RewardTerm term;
    std::array<double, 4> paid;  // the third step is the one that the lane goes back from
  };
  for (const Want& want :
       std::vector<Want>{{"contribution", RewardTerm::kContribution, {0.4, 0.4, 0, 0.4}},
                         {"escrow", RewardTerm::kContribution, {4, 0, 0, 0}},
                         {"escrow", RewardTerm::kEscrow, {0, 0, 0, 0}},
                         {"shaped", RewardTerm::kPotential, {0.3 - 0.6, 0.5 - 0.6, 0.5 - 1, 0.5 - 1}}}) {
    RewardAccount account(want.rule, {.lanes = 1, .slots = 1, .gamma = 0.5}, Losing::kGoesOn);
    account.begin();
    const auto add = [&](SeedStage stage, double points, int64_t is_lost, EpisodePart part) {
      const RawObservation epoch = with_accuracies(at::tensor({0.5f}));
      epoch.states.copy_(testing::packed({{{.stage = stage, .blueprint = 1, .num_seeds = 1}}}));
      epoch.slots.select(2, static_cast<int64_t>(SlotReading::kContributionPoints)).fill_(points);
      account.add(epoch, at::zeros({1}, at::kLong), bools({is_lost}), part, bools({0}));
      return account.reward().terms()[0][static_cast<int64_t>(want.term)].item<double>();
    };
    using enum SeedStage;
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    add(kHolding, kNaN, 0, EpisodePart::kFirst);
    const std::array<double, 4> paid{
        add(kHolding, 4, 0, EpisodePart::kMiddle), add(kFossilized, kNaN, 0, EpisodePart::kMiddle),
        add(kDormant, kNaN, 1, EpisodePart::kMiddle), add(kFossilized, kNaN, 0, EpisodePart::kMiddle)};
    for (size_t step = 0; step < paid.size(); ++step)
      EXPECT_NEAR(paid[step], want.paid[step], 1e-6)
          << want.rule << ", term " << static_cast<int>(want.term) << ", step " << step;
  }
}

TEST(RewardAccount, TakesWhatIsMeasuredFirstForNoGain) {
  TwoLanes lanes(Losing::kGoesOn);
  lanes.add({0, 0}, bools({0, 0}), EpisodePart::kFirst);  // not validated
  lanes.account.begin_accuracy(bools({1, 0}), at::tensor({0.6f, 0.6f}));
  lanes.add({0.6, 0.6}, bools({0, 0}), EpisodePart::kMiddle);
  EXPECT_EQ(lanes.reward(0), 0);
  EXPECT_NEAR(lanes.reward(1), 60, 1e-4);
  lanes.account.begin_accuracy(bools({0, 0}), at::tensor({0.7f, 0.7f}));
  lanes.add({0.7, 0.7}, bools({0, 0}), EpisodePart::kMiddle);
  EXPECT_NEAR(lanes.reward(0), 10, 1e-4);
}

// The second episode of an account, whose first epoch loses the second lane, against the first of another.
TEST(RewardAccount, CarriesNothingOverIntoAnEpisodeWhoseFirstEpochIsLost) {
  const auto last_terms = [](bool is_second) {
    TwoLanes lanes(Losing::kGoesOn);
    const auto add = [&](SeedStage stage, float accuracy, int64_t is_lost, EpisodePart part) {
      const RawObservation epoch = with_accuracies(at::tensor({accuracy, accuracy}));
      const SlotState state{.stage = stage, .blueprint = 1, .num_seeds = 1};
      epoch.states.copy_(testing::packed({{state}, {state}}));
      lanes.account.add(epoch, at::zeros({2}, at::kLong), bools({0, is_lost}), part, bools({0, 0}));
    };
    if (is_second) {
      add(SeedStage::kFossilized, 0.5f, 0, EpisodePart::kFirst);
      add(SeedStage::kFossilized, 0.8f, 0, EpisodePart::kLast);
      lanes.account.begin();
    }
    add(SeedStage::kHolding, 0.2f, 1, EpisodePart::kFirst);
    add(SeedStage::kHolding, 0.6f, 0, EpisodePart::kMiddle);
    return lanes.account.reward().terms()[1].clone();
  };
  const at::Tensor terms = last_terms(true);
  EXPECT_TRUE(at::equal(terms, last_terms(false))) << terms << last_terms(false);
  EXPECT_LT(terms[static_cast<int64_t>(RewardTerm::kPotential)].item<double>(), 0)
      << "the episode began with the seed: that it stands is no gain";
}

TEST(RewardAccount, PaysAndAsksARetiredLaneNothing) {
  TwoLanes lanes(Losing::kGoesOn);
  lanes.add({0.5, 0.5}, bools({0, 0}), EpisodePart::kFirst);
  lanes.account.add(with_accuracies(at::tensor({0.6f, 0.9f})), at::zeros({2}, at::kLong), bools({0, 1}),
                    EpisodePart::kMiddle, bools({0, 1}));
  EXPECT_EQ(lanes.reward(1), 0);
  EXPECT_FALSE(lanes.account.reward().counts()[1].item<bool>());
  EXPECT_TRUE(at::equal(lanes.account.frozen(), bools({0, 1})));
}

}  // namespace
}  // namespace espalier::policy
