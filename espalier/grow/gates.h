// Gates: whether a seed may pass to its next stage, and why. Pure functions of its state and of what was
// measured; a gate changes nothing.
//
// Kept true: a gate lists all its checks, in a fixed order, also after the first that fails; a measurement
// that is missing, or not a number, fails the check that needs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/seed_stage.h"

namespace espalier::grow {

enum class Gate : uint8_t {
  kNone = 0,
  kG0 = 1,  // to GERMINATED: identity complete
  kG1 = 2,  // to TRAINING: germinated
  kG2 = 3,  // to BLENDING: trained long enough, gradients healthy; strict: it helps
  kG3 = 4,  // to HOLDING: the blend reached its target
  kG5 = 5,  // to FOSSILIZED: healthy; strict: a positive contribution
};

// "G2"; "-" for kNone.
const char* name_of(Gate gate);

enum class GateMode : uint8_t {
  kPermissive,  // only what would make the next stage meaningless; a policy learns the rest
  kStrict,      // also asks for evidence that the seed helps
};

struct GateOptions {
  GateMode mode = GateMode::kPermissive;
  // Steps of TRAINING before blending: fewer, and the seed is mostly its initialisation.
  int64_t min_training_steps = 3;
  // Below this an update cannot move a weight of 1 in fp32 (epsilon 1.2e-7).
  double min_gradient_norm = 1e-7;
  // A zero-initialised seed behind a GroupNorm sees its first gradients magnified by 1/sqrt(1e-5) = 316; what
  // is larger than this has exploded.
  double max_gradient_norm = 1e3;
  // Strict, G2: points of validation accuracy gained since TRAINING began. More than the wobble of one epoch.
  double min_improvement_points = 0.5;
  // Strict, G2: below this share of the host's gradient norm the seed is not what the loss asks to change.
  double min_gradient_ratio = 0.05;
  // Strict, G5: the contribution must be larger than this.
  double min_contribution_points = 0;
};

// Refuses thresholds that no seed can meet.
void check_gates(const GateOptions& options);

// What an epoch told about one seed. Empty: not measured.
struct SeedMeasurements {
  bool finite = true;                         // its outputs, gradients and the lane's loss
  std::optional<double> gradient_norm;        // its parameters', mean over the epoch's batches
  std::optional<double> gradient_ratio;       // its gradient norm over the host's
  std::optional<double> improvement_points;   // validation accuracy since TRAINING began
  std::optional<double> contribution_points;  // validation accuracy with the seed minus without
};

struct GateCheck {
  const char* name;
  bool passed;
  std::string detail;  // the value and what was wanted: "2 of 3 steps"
};

struct GateReport {
  Gate gate = Gate::kNone;
  std::vector<GateCheck> checks;  // empty for kNone, which always passes

  bool passed() const;
  // "G2 passed", or "G2 failed: training_steps (2 of 3), gradients_measured (no)".
  std::string summary() const;
};

// `seed` is the state that the slot would have; blueprints are numbered [0, num_blueprints).
GateReport gate_g0(const SlotState& seed, int32_t num_blueprints);
GateReport gate_g1(const SlotState& seed);
GateReport gate_g2(const SlotState& seed, const SeedMeasurements& measured, const GateOptions& options);
GateReport gate_g3(const SlotState& seed);
GateReport gate_g5(const SlotState& seed, const SeedMeasurements& measured, const GateOptions& options);

}  // namespace espalier::grow
