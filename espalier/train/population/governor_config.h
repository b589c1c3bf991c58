// When a network counts as collapsed though its numbers are finite: what governor.h is told.
#pragma once

#include <cstdint>

namespace espalier::train {

enum class Governing : uint8_t { kOn, kOff };

struct GovernorConfig {
  Governing governing = Governing::kOn;
  // A loss has jumped when it is above `ratio` times what it was after the last good step, and by more than
  // `spread` times the usual change from step to step.
  double ratio = 1.5;
  double spread = 6;
  // The usual change is the root mean square of about so many steps.
  int64_t window = 8;
  // At the level of guessing: within so many standard errors of it. Above it: by three times as much.
  double margin = 3;
  // No loss has jumped that is still below this share of the loss of guessing, log(classes): a network that
  // knows its samples by heart moves by several times its loss, and nothing is lost.
  double floor = 0.05;
};

}  // namespace espalier::train
