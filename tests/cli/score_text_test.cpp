#include "espalier/cli/commands/score_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "espalier/cli/commands/doctor/checks.h"

namespace espalier::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ScoreText, WritesLossesThatAPersonCanRead) {
  EXPECT_EQ(loss_text(2.302585), "2.3026");
  EXPECT_EQ(loss_text(10380448862717809262592.0), "1.04e+22");
  EXPECT_EQ(loss_text(kInfinity), "not finite");
}

TEST(ScoreText, ShowsADashWhereNothingWasValidated) {
  EXPECT_EQ(accuracy_text(0, 0), "-");
  EXPECT_EQ(loss_text(0, 0), "-");
  EXPECT_EQ(accuracy_text(0, 5), "0.00 %");
  EXPECT_EQ(accuracy_text(0.5, 5), "50.00 %");
}

TEST(LossAlarm, SaysOnceThatALossIsFarAboveGuessing) {
  LossAlarm alarm(50);
  EXPECT_FALSE(alarm.check(2.3, 10));
  EXPECT_FALSE(alarm.check(9, 10)) << "four times guessing is a bad start, not an explosion";
  const auto told = alarm.check(1e22, 10);
  ASSERT_TRUE(told);
  for (const char* part : {"1.00e+22", "10 classes", "2.30", "--learning-rate 50"})
    EXPECT_NE(told->find(part), told->npos) << *told;
  EXPECT_FALSE(alarm.check(1e22, 10));
}

TEST(LossAlarm, SaysThatALossIsNotFinite) {
  const auto told = LossAlarm(1).check(kInfinity, 2);
  ASSERT_TRUE(told);
  EXPECT_NE(told->find("not finite"), told->npos);
}

TEST(Doctor, SaysWhenTheMachineIsOversubscribed) {
  EXPECT_EQ(check_load(1.5, 2).health, Health::kOk);
  const Check busy = check_load(9.3, 4);
  EXPECT_EQ(busy.health, Health::kNote);
  EXPECT_NE(busy.found.find("9.3"), busy.found.npos) << busy.found;
  EXPECT_NE(busy.remedy.find("--threads 2"), busy.remedy.npos) << busy.remedy;
}

}  // namespace
}  // namespace espalier::cli
