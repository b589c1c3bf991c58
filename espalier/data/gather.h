// The gather operator: pick samples by a plan, crop, flip, normalise, cast, and write them to all lanes of a
// device; one launch, whatever the lanes and fields. Registered as torch.ops.espalier.gather_into.
//
// Output value = value * scale[c] + shift[c], one fused multiply-add in fp32, then one rounding to the
// output's type; where the crop reaches over the edge, the value is what black (0) becomes. The CPU and CUDA
// kernels agree bit for bit. Samples that the plan does not have (a partial last batch) are zeros, labelled
// -100, masked out.
//
// Kept true, whoever calls it: a call is refused with one sentence that names the argument, or reads and
// writes nothing outside of its tensors. Outputs share no memory with each other or with an input, do not
// require grad (or grad mode is off), and have their version counted up: torch finds one that was saved for a
// backward pass. On the host lane ids and the position are checked. On a device they are not read, which
// would be a wait: a lane or a batch that the plan does not have has no samples there, and outputs of its
// own, whatever their length, are filled up like a partial batch.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/data/augment.h"
#include "espalier/data/lane_plan.h"

namespace espalier::data {

struct GatherCall {
  // What is gathered from; pinned host memory serves a CUDA output too.
  std::vector<at::Tensor> fields;  // F x [N,C,H,W] u8|u16|f32|bf16 cl (or all contiguous)
  at::Tensor labels;               // [N] i64
  std::vector<at::Tensor> affine;  // F x [2,C] f32: scale, shift; stored floats use the shift alone

  // Which samples.
  at::Tensor lane_ids;  // [L] i64, on the output's device: see has_lane()
  at::Tensor position;  // [2] i64: epoch, batch; on the CPU, or on the device for a captured step
  LanePlan plan;
  Augmentation augmentation;

  // Where to. Stacked: F tensors, 1 of labels, a mask. Owned: L * F tensors (lane by lane) and L of labels,
  // each as long as the plan gives that lane samples, no mask.
  std::vector<at::Tensor> out;  // F x [L,B,C,H,W], or L*F x [b,C,H,W]; f32|bf16|f16, layout of the fields
  std::vector<at::Tensor> labels_out;  // 1 x [L,B], or L x [b] i64
  at::Tensor mask_out;                 // [L,B] bool, or undefined
};

void gather_into(const GatherCall& call);

// position [2] i64, of a call: to the next batch of a pass of num_batches, or to the first of the next pass.
// One launch on CUDA, which reads nothing on the host.
void advance_position_(const at::Tensor& position, int64_t num_batches);

}  // namespace espalier::data
