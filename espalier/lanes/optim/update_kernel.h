// Kernels over all parameters of all lanes: gradients copied, measured, scaled; SGD and AdamW. One launch per
// table of parameters. Deterministic; updates round as the CPU's do, operation by operation, so the same
// gradients give the same bits.
#pragma once

#include "espalier/lanes/kernel.h"
#include "espalier/lanes/optim/rate_curve.h"

namespace espalier::lanes {

// One parameter. The f32 (or f64) arrays lie alike; the narrow copy has lanes of another stride.
struct ParameterEntry {
  void* value = nullptr;     // [L,n] wide
  void* gradient = nullptr;  // [L,n] wide
  void* first = nullptr;     // [L,n] wide: momentum, or the mean
  void* second = nullptr;    // [L,n] wide: the mean of squares
  void* copy = nullptr;      // [L,n] narrow
  int64_t lane_stride = 0;
  int64_t copy_stride = 0;
  int64_t values = 0;  // n
};

// What fits into a kernel's arguments with room to spare (4 KiB on older drivers).
inline constexpr int kMostParameters = 48;

struct ParameterTable {
  ParameterEntry entry[kMostParameters];
  int32_t num_entries = 0;
  int32_t lanes = 0;
  bool is_double = false;
  KernelType copy_type = KernelType::kF32;  // what copies have; the wide type itself: none are made
};

// What autograd found for one parameter, and where it is wanted. Both lie alike within a lane.
struct GradientCopy {
  void* to = nullptr;          // [L,n] wide
  const void* from = nullptr;  // [L,n] wide
  int64_t to_stride = 0;
  int64_t from_stride = 0;
  int64_t values = 0;       // n
  int32_t first_block = 0;  // the launch's own
};

inline constexpr int kMostCopies = 200;  // 9.6 KiB of arguments: the driver that CUDA 13 asks for takes 32

// What one launch copies, for parameters with any numbers of lanes.
struct GradientCopies {
  GradientCopy entry[kMostCopies];
  int32_t num_entries = 0;
  int32_t num_blocks = 0;
  bool is_double = false;

  void add(GradientCopy copy, int64_t lanes);
};
cudaError_t launch_copy_gradients(const GradientCopies& copies, cudaStream_t stream);

// partial: [num_entries, L] wide: the sum of squares of a parameter's gradient.
cudaError_t launch_gradient_squares(const ParameterTable& table, void* partial, cudaStream_t stream);
// norms [L] = sqrt(sum over num_parts of partial [num_parts, L]).
cudaError_t launch_gradient_norms(const void* partial, int num_parts, int lanes, bool is_double, void* norms,
                                  cudaStream_t stream);

// gradient *= factors [L] wide.
cudaError_t launch_scale_gradients(const ParameterTable& table, const void* factors, cudaStream_t stream);

// What every lane has for itself; factors and decays are rounded to the wide type as they are used.
struct SgdLanes {
  const bool* apply = nullptr;               // [L]
  const void* rates = nullptr;               // [L] wide
  const double* momentum_factors = nullptr;  // [L]
  const double* weight_decays = nullptr;     // [L]
  const double* ages = nullptr;              // [L]: steps made; null: rates do not depend on them
  int64_t age_stride = 0;                    // from a lane's age to the next
  const double* steps_left = nullptr;        // [1]; null where rates do not fall with age
};
cudaError_t launch_sgd(const ParameterTable& table, const SgdLanes& lanes, const RateShare& share,
                       bool nesterov, cudaStream_t stream);

struct AdamScalars {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
};
// step_sizes, root_corrections, kept: [L] f64, rounded to the wide type as they are used.
cudaError_t launch_adamw(const ParameterTable& table, const AdamScalars& scalars, const bool* apply,
                         const double* step_sizes, const double* root_corrections, const double* kept,
                         cudaStream_t stream);

}  // namespace espalier::lanes
