#include "espalier/run/kept_checkpoints.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace espalier::run {
namespace {

using Names = std::vector<std::string>;

class KeptCheckpointsTest : public ::testing::Test {
 protected:
  void write(const std::string& name, std::optional<double> score) {
    nlohmann::ordered_json manifest{{"format", "espalier checkpoint"}};
    if (score) manifest["score"] = *score;
    checkpoints_.write(name, {}, manifest);
    kept_.add(name, score);
  }

  support::TemporaryFolder folder_;
  CheckpointFolder checkpoints_{folder_ / "checkpoints"};
  KeptCheckpoints kept_{checkpoints_, 2};
};

TEST_F(KeptCheckpointsTest, AreTheNewestAndTheBest) {
  write("1", 0.5);
  write("2", 0.9);
  write("3", 0.7);
  EXPECT_EQ(checkpoints_.names(), (Names{"2", "3"}));
  write("4", std::nullopt);
  write("5", 0.9);  // no better than the best
  EXPECT_EQ(checkpoints_.names(), (Names{"2", "4", "5"}));
  EXPECT_EQ(kept_.best_score(), 0.9);
  write("6", 1.0);
  write("7", 0.1);
  write("8", 0.1);
  EXPECT_EQ(checkpoints_.names(), (Names{"6", "7", "8"}));
}

TEST_F(KeptCheckpointsTest, OfAnEarlierStartCountByTheirManifests) {
  EXPECT_EQ(kept_.best_score(), std::nullopt);
  write("1", 0.5);
  write("2", 0.4);
  KeptCheckpoints again(checkpoints_, 1);
  EXPECT_EQ(again.best_score(), 0.5);
  again.add("2", 0.4);
  EXPECT_EQ(checkpoints_.names(), (Names{"1", "2"}));
  checkpoints_.remove("1");  // by a run that goes on from elsewhere
  EXPECT_EQ(again.best_score(), 0.4);
}

}  // namespace
}  // namespace espalier::run
