// The blueprints that come with the library. C channels; GroupNorm by group_norm_groups(); convolutions keep
// height and width and have no bias; initial values are torch's defaults unless stated otherwise.
//
//   noop        x
//   norm        x + tanh(s) (GroupNorm(x) - x), s a scalar, 0 at birth
//   attention   squeeze-excite (Hu et al., arXiv 1709.01507):
//               x times 2 sigmoid(linear(relu(linear(pool(x))))),
//               C/4 features between, the second linear map 0 at birth
//   depthwise   x + GroupNorm(relu(1x1(3x3 depthwise(x))))
//   bottleneck  x + GroupNorm(1x1(3x3(1x1(x)))), max(8, C/4) channels between
//   conv_small  x + GroupNorm(relu(1x1(x)))
//   conv_light  x + GroupNorm(relu(3x3(x)))
//   conv_heavy  x + GroupNorm(relu(3x3(relu(GroupNorm(3x3(x))))))
//
// All are the identity at birth, so that a seed joins without a jump whatever its amplitude. Where a branch
// ends in a GroupNorm, that norm's scale is 0 at first (Goyal et al., arXiv 1706.02677), and not the layer
// before it: a norm brings whatever is not 0 to unit variance, so a zero layer's first step would be a jump.
// No ReLU comes behind it: that would shut for good wherever the first step takes the norm's bias below 0.
#pragma once

#include <vector>

#include "espalier/grow/seeds/blueprint.h"

namespace espalier::grow {

std::vector<Blueprint> built_in_blueprints();  // in the order above

}  // namespace espalier::grow
