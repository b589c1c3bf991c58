#include "espalier/grow/gates.h"

#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using Names = std::vector<std::string>;
const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

SlotState seed_in(SeedStage stage) {
  SlotState seed{.stage = stage, .blueprint = 2, .target = 0.7f, .ramp_steps = 5};
  seed.age_steps = seed.steps_in_stage = 3;
  if (stage >= SeedStage::kBlending) seed.amplitude = seed.target;
  return seed;
}

SeedMeasurements healthy() {
  return {.gradient_norm = 0.4, .gradient_ratio = 0.1, .improvement_points = 1.5, .contribution_points = 0.3};
}

Names failed(const GateReport& report) {
  Names names;
  for (const GateCheck& check : report.checks)
    if (!check.passed) names.push_back(check.name);
  EXPECT_EQ(report.passed(), names.empty());
  return names;
}

Names listed(const GateReport& report) {
  Names names;
  for (const GateCheck& check : report.checks) {
    names.push_back(check.name);
    EXPECT_FALSE(check.detail.empty()) << check.name;
  }
  return names;
}

const GateOptions kPermissive{.mode = GateMode::kPermissive};
const GateOptions kStrict{.mode = GateMode::kStrict};

TEST(Gates, ListTheirChecksInAFixedOrder) {
  const SeedMeasurements none;
  const SlotState seed;
  EXPECT_EQ(listed(gate_g0(seed, 8)),
            (Names{"blueprint_known", "operator_known", "curve_known", "tempo_given", "target_in_range"}));
  EXPECT_EQ(listed(gate_g1(seed)), (Names{"stage", "has_blueprint"}));
  EXPECT_EQ(listed(gate_g2(seed, none, kPermissive)),
            (Names{"stage", "training_steps", "gradients_measured", "finite", "gradients_healthy"}));
  EXPECT_EQ(listed(gate_g2(seed, none, kStrict)),
            (Names{"stage", "training_steps", "gradients_measured", "finite", "gradients_healthy",
                   "improvement", "gradient_ratio"}));
  EXPECT_EQ(listed(gate_g3(seed)), (Names{"stage", "stays", "at_target"}));
  EXPECT_EQ(listed(gate_g5(seed, none, kPermissive)),
            (Names{"stage", "at_target", "gradients_measured", "finite", "gradients_healthy"}));
  EXPECT_EQ(listed(gate_g5(seed, none, kStrict)), (Names{"stage", "at_target", "gradients_measured", "finite",
                                                         "gradients_healthy", "contribution"}));
}

TEST(Gates, RefuseNormsThatNoSeedCanHave) {
  EXPECT_ERROR(check_gates({.min_gradient_norm = 2, .max_gradient_norm = 0.5}), UsageError,
               "--gate-least-norm 2", "--gate-largest-norm 0.5");
  check_gates({.min_gradient_norm = 2, .max_gradient_norm = 2});
  check_gates({});
}

TEST(Gates, PassWhatIsInOrder) {
  for (const GateOptions& options : {kPermissive, kStrict}) {
    EXPECT_EQ(failed(gate_g2(seed_in(SeedStage::kTraining), healthy(), options)), Names{});
    EXPECT_EQ(failed(gate_g5(seed_in(SeedStage::kHolding), healthy(), options)), Names{});
  }
  EXPECT_EQ(failed(gate_g0(seed_in(SeedStage::kGerminated), 8)), Names{});
  EXPECT_EQ(failed(gate_g1(seed_in(SeedStage::kGerminated))), Names{});
  EXPECT_EQ(failed(gate_g3(seed_in(SeedStage::kBlending))), Names{});
}

TEST(Gates, FailEveryOtherStage) {
  for (int i = 0; i < kNumSeedStages; ++i) {
    const auto stage = static_cast<SeedStage>(i);
    const SlotState seed = seed_in(stage);
    EXPECT_EQ(gate_g1(seed).passed(), stage == SeedStage::kGerminated) << name_of(stage);
    EXPECT_EQ(gate_g2(seed, healthy(), kStrict).passed(), stage == SeedStage::kTraining) << name_of(stage);
    EXPECT_EQ(gate_g3(seed).passed(), stage == SeedStage::kBlending) << name_of(stage);
    EXPECT_EQ(gate_g5(seed, healthy(), kStrict).passed(), stage == SeedStage::kHolding) << name_of(stage);
  }
}

TEST(Gates, G0NamesWhatIsMissingOfAnIdentity) {
  const auto with = [](const std::function<void(SlotState&)>& change) {
    SlotState seed = seed_in(SeedStage::kGerminated);
    change(seed);
    return failed(gate_g0(seed, 8));
  };
  EXPECT_EQ(with([](SlotState& s) { s.blueprint = kNoBlueprint; }), Names{"blueprint_known"});
  EXPECT_EQ(with([](SlotState& s) { s.blueprint = 8; }), Names{"blueprint_known"});
  EXPECT_EQ(with([](SlotState& s) { s.blueprint = 7; }), Names{});
  EXPECT_EQ(with([](SlotState& s) { s.blend_operator = BlendOperator{3}; }), Names{"operator_known"});
  EXPECT_EQ(with([](SlotState& s) { s.curve = BlendCurve{5}; }), Names{"curve_known"});
  EXPECT_EQ(with([](SlotState& s) { s.ramp_steps = -1; }), Names{"tempo_given"});
  EXPECT_EQ(with([](SlotState& s) { s.ramp_steps = 0; }), Names{});
  for (const float target : {0.0f, -0.5f, 1.001f, static_cast<float>(kNan), static_cast<float>(kInf)})
    EXPECT_EQ(with([target](SlotState& s) { s.target = target; }), Names{"target_in_range"}) << target;
}

TEST(Gates, G1WantsABlueprint) {
  SlotState seed = seed_in(SeedStage::kGerminated);
  seed.blueprint = kNoBlueprint;
  EXPECT_EQ(failed(gate_g1(seed)), Names{"has_blueprint"});
}

TEST(Gates, G2CountsTheStepsOfThisStageAlone) {
  SlotState seed = seed_in(SeedStage::kTraining);
  seed.age_steps = 100;
  seed.steps_in_stage = 2;
  EXPECT_EQ(failed(gate_g2(seed, healthy(), kPermissive)), Names{"training_steps"});
  seed.steps_in_stage = 3;
  EXPECT_EQ(failed(gate_g2(seed, healthy(), kPermissive)), Names{});
  EXPECT_EQ(failed(gate_g2(seed, healthy(), {.min_training_steps = 4})), Names{"training_steps"});
}

// G2 and G5 ask the same of a seed's health, in both modes.
TEST(Gates, WantMeasuredFiniteHealthyGradients) {
  struct Case {
    bool finite;
    std::optional<double> norm;
    Names fails;
  };
  const std::vector<Case> cases{
      {true, 1e-7, {}},
      {true, 1e3, {}},
      {true, std::nullopt, {"gradients_measured", "gradients_healthy"}},
      {false, 0.4, {"finite"}},
      {true, kNan, {"finite", "gradients_healthy"}},
      {true, kInf, {"finite", "gradients_healthy"}},
      {true, 0.0, {"gradients_healthy"}},
      {true, 0.9e-7, {"gradients_healthy"}},
      {true, 1001, {"gradients_healthy"}},
      {false, std::nullopt, {"gradients_measured", "finite", "gradients_healthy"}},
  };
  for (const Case& test : cases) {
    SeedMeasurements measured = healthy();
    measured.finite = test.finite;
    measured.gradient_norm = test.norm;
    for (const GateOptions& options : {kPermissive, kStrict}) {
      EXPECT_EQ(failed(gate_g2(seed_in(SeedStage::kTraining), measured, options)), test.fails);
      EXPECT_EQ(failed(gate_g5(seed_in(SeedStage::kHolding), measured, options)), test.fails);
    }
  }
}

TEST(Gates, G2AsksForEvidenceOnlyWhenStrict) {
  const SlotState seed = seed_in(SeedStage::kTraining);
  const auto fails = [&](std::optional<double> improvement, std::optional<double> ratio) {
    SeedMeasurements measured = healthy();
    measured.improvement_points = improvement;
    measured.gradient_ratio = ratio;
    EXPECT_EQ(failed(gate_g2(seed, measured, kPermissive)), Names{});
    return failed(gate_g2(seed, measured, kStrict));
  };
  EXPECT_EQ(fails(0.5, 0.05), Names{});
  EXPECT_EQ(fails(0.499, 0.05), Names{"improvement"});
  EXPECT_EQ(fails(0.5, 0.049), Names{"gradient_ratio"});
  EXPECT_EQ(fails(kNan, kNan), (Names{"improvement", "gradient_ratio"}));
  EXPECT_EQ(fails(std::nullopt, std::nullopt), (Names{"improvement", "gradient_ratio"}));
}

TEST(Gates, G3WantsTheBlendAtItsTarget) {
  SlotState seed = seed_in(SeedStage::kBlending);
  seed.amplitude = 0.699f;
  EXPECT_EQ(failed(gate_g3(seed)), Names{"at_target"});
  seed.amplitude = seed.target;
  seed.flags = kSlotRamping;
  EXPECT_EQ(failed(gate_g3(seed)), Names{"at_target"});
}

TEST(Gates, G3NeverHoldsWhatIsBeingRemoved) {
  SlotState seed = seed_in(SeedStage::kBlending);
  seed.flags = kSlotRemoving;
  EXPECT_EQ(failed(gate_g3(seed)), Names{"stays"});
}

TEST(Gates, G5WantsAnAmplitudeAtRest) {
  SlotState seed = seed_in(SeedStage::kHolding);
  seed.flags = kSlotRamping;
  EXPECT_EQ(failed(gate_g5(seed, healthy(), kPermissive)), Names{"at_target"});
}

TEST(Gates, G5AsksForAPositiveContributionOnlyWhenStrict) {
  const SlotState seed = seed_in(SeedStage::kHolding);
  for (const std::optional<double> contribution :
       std::vector<std::optional<double>>{0.0, -0.2, kNan, std::nullopt}) {
    SeedMeasurements measured = healthy();
    measured.contribution_points = contribution;
    EXPECT_EQ(failed(gate_g5(seed, measured, kPermissive)), Names{});
    EXPECT_EQ(failed(gate_g5(seed, measured, kStrict)), Names{"contribution"});
  }
  SeedMeasurements measured = healthy();
  measured.contribution_points = 1e-9;
  EXPECT_EQ(failed(gate_g5(seed, measured, kStrict)), Names{});
}

TEST(Gates, SayInOneLineWhatFailed) {
  SlotState seed = seed_in(SeedStage::kTraining);
  EXPECT_EQ(gate_g2(seed, healthy(), kStrict).summary(), "G2 passed");
  seed.steps_in_stage = 2;
  SeedMeasurements measured = healthy();
  measured.improvement_points = 0.25;
  EXPECT_EQ(gate_g2(seed, measured, kStrict).summary(),
            "G2 failed: training_steps (2 of 3), improvement (0.25, want >= 0.5)");
  EXPECT_EQ(GateReport{}.summary(), "- passed");
}

TEST(Gates, HaveTheirNames) {
  Names names;
  for (const Gate gate : {Gate::kNone, Gate::kG0, Gate::kG1, Gate::kG2, Gate::kG3, Gate::kG5})
    names.push_back(name_of(gate));
  EXPECT_EQ(names, (Names{"-", "G0", "G1", "G2", "G3", "G5"}));
}

}  // namespace
}  // namespace espalier::grow
