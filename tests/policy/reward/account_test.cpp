#include "espalier/policy/reward/account.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

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
