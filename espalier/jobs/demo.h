// `espalier demo`: networks that are too small for their task, with and without growth, side by side.
//
// Kept true: it is an evaluation like any other (evaluate.h), so that its numbers come from a real run and
// it can be repeated with `espalier evaluate`; about a minute on two cores without a GPU.
#pragma once

#include <cstdint>

#include "espalier/jobs/evaluate.h"

namespace espalier::jobs {

// The first of its controllers never grows, the second does.
EvaluateConfig demo_config();

}  // namespace espalier::jobs
