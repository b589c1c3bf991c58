#include "espalier/train/evaluate_job.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/small_ppo.h"

namespace espalier::train {
namespace {

EvaluateOptions small_evaluation() {
  EvaluateOptions options;
  static_cast<EnvironmentOptions&>(options) = testing::small_ppo(2);
  return options;
}

std::vector<ControllerScores> scores_of(const EvaluateOptions& options) {
  return evaluate(options, testing::small_sites(testing::small_ppo(2)), {});
}

TEST(Evaluate, PlaysTheSameEpisodesUnderEveryController) {
  EvaluateOptions options = small_evaluation();
  options.controllers = "none,none,random";
  options.episodes = 2;
  const auto scores = scores_of(options);
  ASSERT_EQ(scores.size(), 3u);
  EXPECT_EQ(scores[0].accuracy.size(), 4u);
  EXPECT_EQ(scores[0].accuracy, scores[1].accuracy);
  EXPECT_EQ(scores[0].returns, scores[1].returns);
  EXPECT_EQ(scores[1].gain_over(scores[0]).mean, 0);
  EXPECT_EQ(scores[1].gain_over(scores[0]).half_width, 0);
  for (const double added : scores[0].added) EXPECT_EQ(added, 0);
  EXPECT_NE(scores[2].returns, scores[0].returns);
  const std::vector<double>& returns = scores[2].returns;  // two episodes of two networks
  const Interval by_hand = interval_of({(returns[0] + returns[1]) / 2, (returns[2] + returns[3]) / 2});
  EXPECT_NEAR(scores[2].interval(returns).mean, by_hand.mean, 1e-12);
  EXPECT_NEAR(scores[2].interval(returns).half_width, by_hand.half_width, 1e-9);
}

TEST(Evaluate, LoadsAPolicyThatLearnsNothingMore) {
  const support::TemporaryFolder folder;
  const std::string file = folder / "policy.safetensors";
  PpoTrainer trainer(testing::small_ppo(2), testing::small_sites(testing::small_ppo(2)));
  trainer.train_round();
  trainer.save(file);
  EvaluateOptions options = small_evaluation();
  options.controllers = "ppo:" + file + ",ppo:" + file;
  const auto drawn = scores_of(options);
  EXPECT_EQ(drawn[0].returns, drawn[1].returns);
  options.greedy = true;
  const auto greedy = scores_of(options);
  EXPECT_EQ(greedy[0].returns, greedy[1].returns);
  EXPECT_NE(greedy[0].returns, drawn[0].returns);
}

TEST(Evaluate, RefusesNamesThatAreNoneAndFilesThatAreNoPolicies) {
  EvaluateOptions options = small_evaluation();
  options.controllers = "none,clever";
  EXPECT_ERROR(scores_of(options), UsageError, "--controllers", "'clever'", "heuristic");
  options.controllers = "ppo:nowhere.safetensors";
  EXPECT_ERROR(scores_of(options), Error, "nowhere.safetensors");
}

}  // namespace
}  // namespace espalier::train
