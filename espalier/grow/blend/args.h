// What the loops of blend_op are handed, on the CPU (cpu.h) and on CUDA (kernel.h): lanes gathered into the
// entries of a stack, and the stacks of a slot blended back, all in one pass over the lanes.
#pragma once

#include "espalier/grow/blend/rule.h"
#include "espalier/lanes/pointers.h"

namespace espalier::grow {

constexpr int kMostStacks = 8;  // in one pass

// One of the stacks that a slot's lanes may have their seed in.
struct StackLanes {
  const int64_t* entry_of_lane = nullptr;  // [L]; negative: not here
  lanes::Stack seeds;       // [E,B,values]; of select: the input, backward its gradient, or nullptr
  lanes::Stack inputs;      // [E,B,values]; of blend, backward: what h was, nullptr: it still is
  lanes::Stack gates;       // [E,B] wide, or nullptr
  lanes::Stack grad_seeds;  // [E,B,values]; empty entries are not written
  lanes::Stack grad_gates;  // [E,B] wide, or nullptr
};

struct BlendArgs {
  int32_t lanes = 0;
  int32_t batch = 0;
  int32_t values = 0;  // per sample
  lanes::KernelType type = lanes::KernelType::kBf16;
  const float* amplitude = nullptr;         // [L]
  const uint8_t* blend_operator = nullptr;  // [L]
  const bool* isolated = nullptr;           // [L]
  const int64_t* active = nullptr;          // [L], forward: lanes that are negative are left out; null: none
  lanes::Stack h;                           // [L,B,values]
  lanes::Stack out;     // [L,B,values]; its gradient backward: nullptr: zeros (select alone)
  lanes::Stack grad_h;  // [L,B,values]; may be `out` itself, as `out` may be h forward
  int32_t num_stacks = 0;
  StackLanes stacks[kMostStacks];
};

// Forward of select: the inputs of all stacks from h; those of empty entries are not written. Backward:
// grad_h, the gradient of `through`, and of the inputs added where a lane is not isolated.
enum class BlendPass { kSelectForward, kSelectBackward, kBlendForward, kBlendBackward };

// Where a lane has its seed, and what is done with it.
struct Held {
  int stack = -1;
  int64_t entry = -1;
  LaneBlend blend;
  BlendRule rule = BlendRule::kThrough;
  bool gated = false;
};

ESPALIER_HOST_DEVICE Held held_by(const BlendArgs& args, int lane) {
  Held held;
  for (int i = 0; i < args.num_stacks && held.entry < 0; ++i) {
    held.entry = args.stacks[i].entry_of_lane[lane];
    held.stack = i;
  }
  if (held.entry < 0) return held;
  held.blend = {args.amplitude[lane], static_cast<BlendOperator>(args.blend_operator[lane]),
                args.isolated[lane]};
  held.rule = held.blend.rule();
  held.gated = held.blend.blend_operator == BlendOperator::kGate &&
               args.stacks[held.stack].gates.data != nullptr && is_arithmetic(held.rule);
  return held;
}

}  // namespace espalier::grow
