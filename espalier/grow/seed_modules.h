// The blueprints that come with the library. C channels; GroupNorm by group_norm_groups(); convolutions keep
// height and width and have no bias, since a norm follows; what is not said to begin otherwise begins as
// torch's defaults.
//
//   noop        x
//   norm        x + tanh(s) (GroupNorm(x) - x), s a scalar, 0 at birth
//   attention   squeeze-excite (Hu et al., arXiv 1709.01507): x times sigmoid(linear(relu(linear(pool(x))))),
//               C/4 features between, the second linear map with weight 0 and bias 3 at birth
//   depthwise   relu(x + GroupNorm(1x1(3x3 depthwise(x))))
//   bottleneck  x + GroupNorm(1x1(3x3(1x1(x)))), max(8, C/4) channels between, the last 1x1 zero at birth
//   conv_small  x + relu(GroupNorm(1x1(x))), the 1x1 zero at birth
//   conv_light  x + relu(GroupNorm(3x3(x)))
//   conv_heavy  x + the same twice over
//
// noop, norm, bottleneck and conv_small are the identity at birth.
#pragma once

#include <vector>

#include "espalier/grow/blueprint.h"

namespace espalier::grow {

std::vector<Blueprint> built_in_blueprints();  // in the order above

}  // namespace espalier::grow
