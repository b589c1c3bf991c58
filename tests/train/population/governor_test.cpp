#include "espalier/train/population/governor.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <set>

#include "tests/support/cuda.h"

namespace espalier::train {
namespace {

// 200 samples of ten classes: guessing is below 16.4 %, having learned above 29.1 %.
constexpr GuessingLevel kTenClasses{.accuracy = 0.1, .num_samples = 200};

struct Shown {
  double train_loss = 1;
  double validation_loss = 1;
  double accuracy = 0.5;
  bool is_finite = true;
};

// One lane, epoch by epoch.
class OneLane {
 public:
  explicit OneLane(const GovernorConfig& config = {}, const GuessingLevel& guessing = kTenClasses)
      : governor_(config, guessing, 1, at::kCPU) {}

  Verdict judge(const Shown& shown) {
    const auto of = [](double value) { return at::full({1}, value, at::kDouble); };
    return static_cast<Verdict>(governor_
                                    .judge({of(shown.train_loss), of(shown.validation_loss),
                                            of(shown.accuracy), at::full({1}, !shown.is_finite, at::kBool)})
                                    .item<double>());
  }
  // Falling losses, rising accuracy: changes of 0.05 from step to step.
  void learn(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step)
      EXPECT_EQ(judge({1.4 - 0.05 * static_cast<double>(step), 1.5 - 0.05 * static_cast<double>(step),
                       0.4 + 0.02 * static_cast<double>(step)}),
                Verdict::kSound);
  }
  void forget() { governor_.forget(0); }
  const Governor& governor() const { return governor_; }

 private:
  Governor governor_;
};

TEST(Governor, LetsLossesWobbleAroundTheirTrend) {
  OneLane lane;
  torch::manual_seed(1);
  const at::Tensor noise = at::randn({2, 200}, at::kDouble) * 0.05;
  for (int64_t step = 0; step < 200; ++step) {
    const double trend = 0.3 + 2 * std::exp(-0.03 * static_cast<double>(step));
    EXPECT_EQ(lane.judge({trend + noise[0][step].item<double>(), trend + 2 * noise[1][step].item<double>(),
                          1 - trend / 3}),
              Verdict::kSound)
        << "step " << step;
  }
}

TEST(Governor, SeesATrainingLossThatJumps) {
  OneLane lane;
  lane.learn(5);  // the last one is 1.2
  EXPECT_EQ(lane.judge({.train_loss = 1.2 * 1.6, .validation_loss = 1.3}), Verdict::kLossJumped);
  EXPECT_EQ(lane.judge({.train_loss = 1.2 * 1.4, .validation_loss = 1.3}), Verdict::kSound)
      << "below the ratio";
}

TEST(Governor, LetsALossThatAlwaysChangesThatMuchDoSoAgain) {
  OneLane lane;
  for (int step = 0; step < 6; ++step) lane.judge({.train_loss = step % 2 == 0 ? 1.0 : 1.9});
  EXPECT_EQ(lane.judge({.train_loss = 1.0}), Verdict::kSound);
  EXPECT_EQ(lane.judge({.train_loss = 2.4}), Verdict::kSound) << "2.4 times, but by 1.6 of the usual changes";
  EXPECT_EQ(lane.judge({.train_loss = 12}), Verdict::kLossJumped);
}

// A small dataset known by heart: 0.05 log(10) is 0.115.
TEST(Governor, TakesNoLossNearZeroForAJump) {
  GuessingLevel ten_classes = kTenClasses;
  ten_classes.loss = std::log(10.0);
  const auto memorised = [](OneLane& lane) {
    for (int step = 0; step < 6; ++step)
      EXPECT_EQ(lane.judge({.train_loss = 0.0015 - 0.00004 * step, .validation_loss = 0.0016}),
                Verdict::kSound);
  };
  OneLane lane({}, ten_classes);
  memorised(lane);
  EXPECT_EQ(lane.judge({.train_loss = 0.0021, .validation_loss = 0.0025}), Verdict::kSound);
  EXPECT_EQ(lane.judge({.train_loss = 0.11, .validation_loss = 0.11}), Verdict::kSound);
  OneLane broken({}, ten_classes);
  memorised(broken);
  EXPECT_EQ(broken.judge({.train_loss = 0.12, .validation_loss = 0.12}), Verdict::kLossJumped);
  OneLane without({.floor = 0}, ten_classes);
  memorised(without);
  EXPECT_EQ(without.judge({.train_loss = 0.0021, .validation_loss = 0.0025}), Verdict::kLossJumped);
}

TEST(Governor, BelievesValidationOnlyWhereTrainingAgrees) {
  OneLane lane;
  lane.learn(5);
  EXPECT_EQ(lane.judge({.train_loss = 1.15, .validation_loss = 4, .accuracy = 0.1}), Verdict::kDoubtful)
      << "batch norm's statistics lag behind at high rates";
  OneLane other;
  other.learn(5);
  EXPECT_EQ(other.judge({.train_loss = 1.25, .validation_loss = 4, .accuracy = 0.3}), Verdict::kLossJumped);
}

// Training is late where a network breaks in the last batches of a step.
TEST(Governor, HoldsABrokenNetworkAgainstWhatItWasBeforeTheDoubt) {
  const Shown broken{.train_loss = 1.15, .validation_loss = 4, .accuracy = 0.1};
  struct Next {
    Shown shown;
    Verdict want;
  };
  for (const Next& next :
       {Next{{.train_loss = 1.6, .validation_loss = 2.4, .accuracy = 0.1}, Verdict::kLossJumped},
        Next{{.train_loss = 1.6, .validation_loss = 1.9, .accuracy = 0.1}, Verdict::kGuessing},
        Next{{.train_loss = 2.3, .validation_loss = 1.3, .accuracy = 0.5}, Verdict::kLossJumped},
        Next{{.train_loss = 1.6, .validation_loss = 1.5, .accuracy = 0.4}, Verdict::kSound}}) {
    SCOPED_TRACE(next.shown.validation_loss);
    OneLane lane;
    lane.learn(5);  // at 1.2, 1.3 and 48 %
    EXPECT_EQ(lane.judge(broken), Verdict::kDoubtful);
    EXPECT_EQ(lane.judge(next.shown), next.want);
    if (next.want == Verdict::kSound) continue;
    // It goes back: the epochs left nothing, not even a doubt.
    EXPECT_EQ(lane.judge(broken), Verdict::kDoubtful);
    EXPECT_EQ(lane.judge({.train_loss = 1.15, .validation_loss = 1.25, .accuracy = 0.5}), Verdict::kSound);
    EXPECT_EQ(lane.judge({.train_loss = 1.2, .validation_loss = 4, .accuracy = 0.3}), Verdict::kLossJumped);
  }
}

// A validation loss that soars and stays, as where a network overfits, must not be doubted for ever.
TEST(Governor, EndsADoubtWhereTrainingDoesNotRise) {
  OneLane lane;
  lane.learn(5);
  EXPECT_EQ(lane.judge({.train_loss = 1.15, .validation_loss = 4, .accuracy = 0.4}), Verdict::kDoubtful);
  EXPECT_EQ(lane.judge({.train_loss = 1.1, .validation_loss = 4.1, .accuracy = 0.4}), Verdict::kSound);
  for (int step = 1; step <= 5; ++step)
    EXPECT_EQ(lane.judge({.train_loss = 1.1 - 0.02 * step, .validation_loss = 4.2, .accuracy = 0.4}),
              Verdict::kSound);
  // At guessing there is always doubt, but never of two epochs in a row.
  EXPECT_EQ(lane.judge({.train_loss = 0.9, .validation_loss = 4.2, .accuracy = 0.1}), Verdict::kDoubtful);
  EXPECT_EQ(lane.judge({.train_loss = 0.85, .validation_loss = 4.2, .accuracy = 0.1}), Verdict::kSound);
  EXPECT_EQ(lane.judge({.train_loss = 0.8, .validation_loss = 4.2, .accuracy = 0.1}), Verdict::kDoubtful);
}

TEST(Governor, KeepsADoubtUntilTrainingFallsOrValidationTells) {
  const auto learned_and_doubtful = [] {
    Governor governor({}, kTenClasses, 1, at::kCPU);
    const at::Tensor finite = at::zeros({1}, at::kBool);
    const auto of = [](double value) { return at::full({1}, value, at::kDouble); };
    for (int step = 0; step < 5; ++step)
      governor.judge({of(1.4 - 0.05 * step), of(1.5 - 0.05 * step), of(0.4 + 0.02 * step), finite});
    EXPECT_EQ(governor.judge({of(1.15), of(4), of(0.1), finite}).item<double>(),
              static_cast<double>(Verdict::kDoubtful));
    return governor;
  };
  const auto unvalidated = [](Governor& governor, double loss) {
    return static_cast<Verdict>(
        governor
            .judge({.train_loss = at::full({1}, loss, at::kDouble), .not_finite = at::zeros({1}, at::kBool)})
            .item<double>());
  };
  const auto validated = [](Governor& governor, double loss, double accuracy) {
    return static_cast<Verdict>(
        governor
            .judge({at::full({1}, loss, at::kDouble), at::full({1}, loss + 0.1, at::kDouble),
                    at::full({1}, accuracy, at::kDouble), at::zeros({1}, at::kBool)})
            .item<double>());
  };
  Governor fell = learned_and_doubtful();
  EXPECT_EQ(unvalidated(fell, 1.1), Verdict::kSound);
  EXPECT_EQ(unvalidated(fell, 1.3), Verdict::kSound) << "there is no doubt any more";
  Governor rose = learned_and_doubtful();
  EXPECT_EQ(unvalidated(rose, 1.6), Verdict::kDoubtful);
  EXPECT_EQ(unvalidated(rose, 1.5), Verdict::kDoubtful);
  Governor again = learned_and_doubtful();
  unvalidated(again, 1.6);
  EXPECT_EQ(validated(rose, 1.4, 0.4), Verdict::kSound);
  EXPECT_EQ(validated(again, 1.4, 0.1), Verdict::kGuessing);
}

TEST(Governor, ShowsTheScoresOfADoubtfulEpochAndDoesNotCompareWithThem) {
  OneLane lane;
  lane.learn(5);
  lane.judge({.train_loss = 1.15, .validation_loss = 4, .accuracy = 0.1});
  EXPECT_EQ(lane.governor().num_validated().item<double>(), 6);
  EXPECT_EQ(lane.governor().validation_loss().item<double>(), 4);
  EXPECT_EQ(lane.governor().validation_accuracy().item<double>(), 0.1);
  lane.judge({.train_loss = 2.4, .validation_loss = 5, .accuracy = 0.05});
  EXPECT_EQ(lane.governor().num_validated().item<double>(), 6) << "a collapse shows nothing";
  EXPECT_EQ(lane.governor().validation_loss().item<double>(), 4);
}

TEST(Governor, SeesAccuracyBackAtTheLevelOfGuessing) {
  OneLane lane;
  lane.learn(1);  // at 40 %: a jump would not be seen yet
  EXPECT_EQ(lane.judge({.train_loss = 1.5, .validation_loss = 1.6, .accuracy = 0.163}), Verdict::kGuessing);
  EXPECT_EQ(lane.judge({.train_loss = 1.5, .validation_loss = 1.6, .accuracy = 0.165}), Verdict::kSound);
  OneLane never_above;
  never_above.judge({.train_loss = 2.3, .accuracy = 0.28});
  EXPECT_EQ(never_above.judge({.train_loss = 2.4, .accuracy = 0.1}), Verdict::kSound);
}

TEST(Governor, SeesAFallToGuessingThatTakesTwoSteps) {
  OneLane lane;
  lane.learn(5);  // at 48 %
  EXPECT_EQ(lane.judge({.train_loss = 1.74, .validation_loss = 1.8, .accuracy = 0.2}), Verdict::kSound);
  EXPECT_EQ(lane.judge({.train_loss = 2.3, .validation_loss = 2.3, .accuracy = 0.1}), Verdict::kGuessing);
}

TEST(Governor, KnowsNoGuessingWhereValidationHasOneClass) {
  OneLane lane({}, {.accuracy = 1, .num_samples = 1});
  for (const double loss : {1.0, 1.1, 1.2})
    EXPECT_EQ(lane.judge({.train_loss = loss, .accuracy = 1}), Verdict::kSound);
  EXPECT_EQ(lane.judge({.train_loss = 1.3, .accuracy = 0}), Verdict::kSound);
}

TEST(Governor, SeesGuessingOnlyWhereAccuracyFell) {
  OneLane lane({.margin = 0}, {.accuracy = 0.5, .num_samples = 200});
  for (const double loss : {1.0, 1.1, 1.2})
    EXPECT_EQ(lane.judge({.train_loss = loss, .accuracy = 0.5}), Verdict::kSound);
  EXPECT_EQ(lane.judge({.train_loss = 1.3, .accuracy = 0.495}), Verdict::kGuessing);
}

TEST(Governor, ComparesALaneAnewWhoseLossesItForgets) {
  OneLane lane;
  lane.learn(5);
  EXPECT_EQ(lane.judge({.train_loss = 2.5, .validation_loss = 2.6, .accuracy = 0.1}), Verdict::kLossJumped);
  lane.forget();
  EXPECT_EQ(lane.governor().num_validated().item<double>(), 5) << "the scores are still known";
  EXPECT_DOUBLE_EQ(lane.governor().validation_accuracy().item<double>(), 0.48);
  EXPECT_EQ(lane.judge({.train_loss = 2.5, .validation_loss = 2.6, .accuracy = 0.1}), Verdict::kSound);
  EXPECT_EQ(lane.governor().num_validated().item<double>(), 6);
  EXPECT_EQ(lane.judge({.train_loss = 2.6, .validation_loss = 2.7, .accuracy = 0.09}), Verdict::kSound)
      << "it is no fall from what the network reached that it was";
  lane.learn(5);
  EXPECT_EQ(lane.judge({.train_loss = 9, .validation_loss = 9, .accuracy = 0.3}), Verdict::kLossJumped);
}

TEST(Governor, ForgetsOneLaneAlone) {
  Governor governor({}, kTenClasses, 2, at::kCPU);
  const auto of = [](double value) { return at::full({2}, value, at::kDouble); };
  const at::Tensor sound = at::zeros({2}, at::kBool);
  for (int step = 0; step < 5; ++step) governor.judge({of(1 - 0.01 * step), of(1), of(0.6), sound});
  governor.forget(1);
  const at::Tensor verdicts = governor.judge({of(2.5), of(2.5), of(0.1), sound});
  EXPECT_EQ(verdicts[0].item<double>(), static_cast<double>(Verdict::kLossJumped));
  EXPECT_EQ(verdicts[1].item<double>(), 0);
}

TEST(Governor, IsNotUsedToWhatWasNotSound) {
  OneLane lane;
  lane.learn(5);
  for (int again = 0; again < 10; ++again)
    EXPECT_EQ(lane.judge({.train_loss = 2.5, .validation_loss = 2.6, .accuracy = 0.2}), Verdict::kLossJumped);
  EXPECT_EQ(lane.judge({.train_loss = NAN, .is_finite = false}), Verdict::kNotFinite);
  EXPECT_EQ(lane.judge({.train_loss = 1.15, .validation_loss = 1.25}), Verdict::kSound);
}

TEST(Governor, SaysOnlyWhatIsNotFiniteWhereItIsOff) {
  OneLane lane({.governing = Governing::kOff});
  lane.learn(5);
  EXPECT_EQ(lane.judge({.train_loss = 100, .validation_loss = 100, .accuracy = 0.1}), Verdict::kSound);
  EXPECT_EQ(lane.judge({.train_loss = NAN, .is_finite = false}), Verdict::kNotFinite);
}

TEST(Governor, JudgesByNoValidationWhereThereIsNone) {
  Governor governor({}, {}, 1, at::kCPU);
  const at::Tensor zero = at::zeros({1}, at::kDouble), sound = at::zeros({1}, at::kBool);
  for (int step = 0; step < 8; ++step)
    EXPECT_EQ(governor.judge({at::full({1}, 2 - 0.1 * step, at::kDouble), zero, zero, sound}).item<double>(),
              0);
  EXPECT_EQ(governor.judge({at::full({1}, 5.0, at::kDouble), zero, zero, sound}).item<double>(),
            static_cast<double>(Verdict::kLossJumped));
}

// Undefined: the epoch was not validated.
TEST(Governor, KeepsWhatItKnowsOfValidationWhereThereIsNone) {
  const auto of = [](double value) { return at::full({1}, value, at::kDouble); };
  const at::Tensor sound = at::zeros({1}, at::kBool);
  Governor always({}, kTenClasses, 1, at::kCPU), now_and_then({}, kTenClasses, 1, at::kCPU);
  for (int step = 0; step < 18; ++step) {
    const double train = 2 - 0.05 * step;
    if (step % 3 != 2) {
      EXPECT_EQ(now_and_then.judge({.train_loss = of(train), .not_finite = sound}).item<double>(), 0);
      continue;
    }
    // Only what is measured is remembered, so that the usual change does not shrink.
    const double loss = step % 2 == 0 ? 2.0 : 2.2;
    const double accuracy = 0.4 + 0.01 * step;
    always.judge({of(train), of(loss), of(accuracy), sound});
    EXPECT_EQ(now_and_then.judge({of(train), of(loss), of(accuracy), sound}).item<double>(), 0);
    EXPECT_EQ(now_and_then.num_validated().item<double>(), 1 + step / 3);
    EXPECT_EQ(now_and_then.validation_loss().item<double>(), loss);
    EXPECT_EQ(now_and_then.validation_accuracy().item<double>(), accuracy);
    const auto wanted = always.state(), known = now_and_then.state();
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i].name.find("validat") == std::string::npos) continue;
      EXPECT_EQ(known[i].tensor.item<double>(), wanted[i].tensor.item<double>())
          << wanted[i].name << ", " << step;
    }
  }
  // Above 1.5 times 2.2, and by 5.75 of the usual changes: with repeats among these it would be by ten.
  EXPECT_EQ(now_and_then.judge({of(1.2), of(3.35), of(0.3), sound}).item<double>(), 0);
  EXPECT_EQ(
      now_and_then.judge({.train_loss = of(NAN), .not_finite = at::ones({1}, at::kBool)}).item<double>(),
      static_cast<double>(Verdict::kNotFinite));
  EXPECT_EQ(now_and_then.judge({.train_loss = of(9), .not_finite = sound}).item<double>(),
            static_cast<double>(Verdict::kLossJumped))
      << "training alone";
}

TEST(Governor, BeginsAnewWithEveryEpisode) {
  Governor governor({}, kTenClasses, 1, at::kCPU);
  const auto of = [](double value) { return at::full({1}, value, at::kDouble); };
  const at::Tensor sound = at::zeros({1}, at::kBool);
  for (int step = 0; step < 6; ++step) governor.judge({of(1 - 0.01 * step), of(1), of(0.6), sound});
  governor.begin();
  EXPECT_EQ(governor.judge({of(2.3), of(2.3), of(0.1), sound}).item<double>(), 0);
}

// Random losses, now and then far away.
std::vector<Governor::Epoch> random_epochs(int64_t lanes) {
  torch::manual_seed(7);
  std::vector<Governor::Epoch> epochs;
  for (int step = 0; step < 30; ++step) {
    const auto loss = [&] {
      return 1 + 0.1 * at::randn({lanes}, at::kDouble) +
             at::rand({lanes}, at::kDouble).gt(0.9).to(at::kDouble) * 3;
    };
    epochs.push_back({loss(), loss(), at::rand({lanes}, at::kDouble), at::rand({lanes}).gt(0.95)});
  }
  return epochs;
}

TEST(Governor, JudgesALaneAmongOthersAsAlone) {
  Governor all({}, kTenClasses, 5, at::kCPU), alone({}, kTenClasses, 1, at::kCPU);
  std::set<double> seen;
  for (const Governor::Epoch& epoch : random_epochs(5)) {
    const at::Tensor verdicts = all.judge(epoch);
    const auto third = [](const at::Tensor& values) { return values.narrow(0, 3, 1); };
    EXPECT_EQ(verdicts[3].item<double>(),
              alone
                  .judge({third(epoch.train_loss), third(epoch.validation_loss),
                          third(epoch.validation_accuracy), third(epoch.not_finite)})
                  .item<double>());
    for (int64_t lane = 0; lane < 5; ++lane) seen.insert(verdicts[lane].item<double>());
  }
  EXPECT_EQ(std::ssize(seen), kNumVerdicts) << "every verdict was seen";
}

TEST(GovernorCuda, EqualsTheCpu) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const int64_t lanes : {1, 33}) {
    Governor cpu({}, kTenClasses, lanes, at::kCPU), gpu({}, kTenClasses, lanes, at::kCUDA);
    for (const Governor::Epoch& epoch : random_epochs(lanes))
      EXPECT_TRUE(
          at::equal(cpu.judge(epoch), gpu.judge({epoch.train_loss.cuda(), epoch.validation_loss.cuda(),
                                                 epoch.validation_accuracy.cuda(), epoch.not_finite.cuda()})
                                          .cpu()));
  }
}

}  // namespace
}  // namespace espalier::train
