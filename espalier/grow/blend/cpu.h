// blend_op on the CPU: all stacks of a slot in one pass, over the lanes that have anything to do.
//
// Kept true: a lane's bits do not depend on the other lanes, nor on who computes how many of its samples; a
// lane that is not blended keeps its bits, and where the result takes the place of what it is made from, it
// costs nothing.
#pragma once

#include "espalier/grow/blend/args.h"

namespace espalier::grow {

void blend_by_cpu(BlendPass pass, const BlendArgs& args);

}  // namespace espalier::grow
