#include "espalier/core/lane_outcome.h"

namespace espalier {

const char* name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSound:
      return "sound";
    case Verdict::kNotFinite:
      return "not_finite";
    case Verdict::kLossJumped:
      return "loss_jumped";
    case Verdict::kGuessing:
      return "guessing";
    case Verdict::kDoubtful:
      return "doubtful";
  }
  return "?";
}

const char* name_of(LaneOutcome outcome) {
  switch (outcome) {
    case LaneOutcome::kTrained:
      return "trained";
    case LaneOutcome::kRolledBack:
      return "rolled_back";
    case LaneOutcome::kRetired:
      return "retired";
  }
  return "?";
}

bool is_collapse(std::string_view name) {
  for (int number = 0; number < kNumVerdicts; ++number)
    if (const auto verdict = static_cast<Verdict>(number); name == name_of(verdict))
      return is_collapse(verdict);
  return false;
}

}  // namespace espalier
