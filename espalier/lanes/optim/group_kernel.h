// Kernels of one update of many groups of stacked parameters: squares of gradients, the verdict on every
// entry, clipping and SGD. Three launches, whatever the number of groups; empty entries are not in the
// lists and cost nothing.
//
// Everything is walked by lists in device memory: a captured update does what the lists say when it is
// replayed. Deterministic: no atomics; the parts of a sum depend on a parameter's size alone. Like the CPU's
// update, it rounds every operation once.
#pragma once

#include "espalier/lanes/kernel.h"
#include "espalier/lanes/optim/rate_curve.h"

namespace espalier::lanes {

inline constexpr int kUnitValues =
    2048;  // values of one entry's parameter that one block goes over at a time

// One parameter of a group. The wide arrays lie alike; the narrow copy has lanes of another stride.
struct GroupParameter {
  void* value = nullptr;           // [E,n] wide
  const void* gradient = nullptr;  // [E,n] wide
  void* momentum = nullptr;        // [E,n] wide; null: none
  void* copy = nullptr;            // [E,n] bf16 or f16; null: none
  int64_t lane_stride = 0;
  int64_t copy_stride = 0;
  int32_t values = 0;  // n
  KernelType copy_type = KernelType::kBf16;
};

// What the parameters of one group share.
struct GroupFacts {
  const bool* frozen = nullptr;            // [E]; null: none is
  const bool* optimizer_frozen = nullptr;  // [E]
  double* ages = nullptr;                  // [E] f64: steps made; null: rates do not depend on them
  int64_t age_stride = 0;
  const double* momentum_factors = nullptr;  // [L]
  const double* weight_decays = nullptr;     // [L]
  RateShare share;                           // share of the rates; where it falls, share of the peak rates
  double* norms = nullptr;                   // [L] f64: the sum that the norms are added to; null: none
  bool nesterov = false;
};

// One entry in use. The hosts come first: entry l of the list is lane l's.
struct LiveEntry {
  int32_t group = 0;
  int32_t entry = 0;
  int32_t lane = 0;
  int32_t first_unit = 0;
  int32_t num_units = 0;
};

// Part `part` of one entry's parameter, kUnitValues values.
struct UpdateUnit {
  int32_t live = 0;
  int32_t parameter = 0;
  int32_t part = 0;
};

// The lists in device memory.
struct UpdateLists {
  const int32_t* counts = nullptr;  // [2]: live entries, units
  const GroupFacts* groups = nullptr;
  const GroupParameter* parameters = nullptr;
  const LiveEntry* live = nullptr;
  const UpdateUnit* units = nullptr;
};

// What a step says of its lanes, and where the update's sums go; all [L] on the device, null where there is
// none.
struct UpdateLanes {
  int32_t lanes = 0;
  const void* losses = nullptr;        // wide
  const bool* is_active = nullptr;     // lanes that are trained at all
  const void* peak_rates = nullptr;    // wide
  double* step = nullptr;              // [1] f64: the step's number in the run; launch_group_sgd() adds one
  RunShare schedule;                   // what rates are of the peak, unless they fall with an entry's age
  const float* scales = nullptr;       // f16: loss scales, powers of two; gradients are divided by them
  double smallest_scale = 0;           // below which a scale does not fall
  const double* clip_norms = nullptr;  // 0: any norm
  double* norms = nullptr;             // f64: += the hosts' gradient norms
  double* largest_norms = nullptr;     // f64: max=
  double* non_finite = nullptr;        // f64: += 1 where a lane that is trained could not be
  double* skipped = nullptr;           // f64, f16: += 1 where the scale is to be lowered first
  bool* is_whole = nullptr;            // f16: false where gradients overflowed
};

// What the verdict leaves to the update, per live entry.
struct EntryVerdict {
  double rate = 0;
  double factor = 1;  // for clipping
  double unscale = 1;
  bool moves = false;
};

// partial: [units] wide.
cudaError_t launch_unit_squares(const UpdateLists& lists, const UpdateLanes& lanes, bool is_double,
                                void* partial, int blocks, cudaStream_t stream);
// verdicts: [live entries].
cudaError_t launch_verdicts(const UpdateLists& lists, const UpdateLanes& lanes, bool is_double,
                            const void* partial, EntryVerdict* verdicts, int blocks, cudaStream_t stream);
// The last of the three.
cudaError_t launch_group_sgd(const UpdateLists& lists, const UpdateLanes& lanes, const EntryVerdict* verdicts,
                             bool is_double, int blocks, cudaStream_t stream);

}  // namespace espalier::lanes
