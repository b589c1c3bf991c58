#include "espalier/train/control/policy_terms.h"

#include <gtest/gtest.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::train {
namespace {

PolicyTerms some_terms() {
  return {.blueprints = {{"noop", "conv"}},
          .host_slots = {{"r0c0", "r1c0"}},
          .planted_slots = {{"r1c0"}},
          .max_seeds = 3,
          .parameter_budget = 0.1,
          .gates = "strict",
          .gate_training_steps = 0,
          .gate_least_norm = 1e-7,
          .gate_largest_norm = 1e3,
          .gate_improvement = -0.5,
          .gate_gradient_ratio = 0.05,
          .gate_contribution = 0.1,
          .embargo = 5,
          .episode_length = 25,
          .batches_per_step = 0,
          .validate_every = 4,
          .validation_parts = 2,
          .telemetry_every = 0};
}

TEST(PolicyTerms, ComeBackFromMetadata) {
  EXPECT_EQ(policy_terms(metadata_of(some_terms()), "file"), some_terms());
}

TEST(PolicyTerms, AreMissingInAFileFromBeforeTheyWereKept) {
  EXPECT_EQ(policy_terms({{"kind", "espalier.policy"}}, "file"), PolicyTerms{});
}

TEST(PolicyTerms, RefuseWhatIsNone) {
  for (const auto& [key, text] :
       {std::pair{"blueprints", "a,,b"}, std::pair{"host_slots", ""}, std::pair{"max_seeds", "0"},
        std::pair{"parameter_budget", "-1"}, std::pair{"parameter_budget", "nan"}, std::pair{"gates", "open"},
        std::pair{"gate_training_steps", "-1"}, std::pair{"gate_least_norm", "1e-7x"},
        std::pair{"gate_contribution", "inf"}, std::pair{"episode_length", "ten"},
        std::pair{"telemetry_every", "-1"}}) {
    Metadata metadata = metadata_of(some_terms());
    metadata[key] = text;
    EXPECT_ERROR(policy_terms(metadata, "file"), Error, "'file'", fmt::format("'{}'", key));
  }
}

}  // namespace
}  // namespace espalier::train
