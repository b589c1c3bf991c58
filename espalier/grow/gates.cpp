#include "espalier/grow/gates.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "espalier/core/error.h"

namespace espalier::grow {
namespace {

constexpr std::array<const char*, 6> kGateNames{"-", "G0", "G1", "G2", "G3", "G5"};

GateCheck stage_is(const SlotState& seed, SeedStage wanted) {
  return {"stage", seed.stage == wanted, fmt::format("{}, want {}", name_of(seed.stage), name_of(wanted))};
}

GateCheck blend_is_at_target(const SlotState& seed) {
  return {"at_target", !is_ramping(seed) && seed.amplitude == seed.target,
          fmt::format("amplitude {:.4g}, target {:.4g}", seed.amplitude, seed.target)};
}

// Three checks that G2 and G5 share.
void check_health(std::vector<GateCheck>& checks, const SeedMeasurements& measured,
                  const GateOptions& options) {
  const auto& norm = measured.gradient_norm;
  checks.push_back({"gradients_measured", norm.has_value(), norm ? "yes" : "no"});
  checks.push_back({"finite", measured.finite && (!norm || std::isfinite(*norm)),
                    measured.finite ? fmt::format("gradient norm {:.4g}", norm.value_or(0))
                                    : "a loss, output or gradient was not"});
  checks.push_back({"gradients_healthy",
                    norm && *norm >= options.min_gradient_norm && *norm <= options.max_gradient_norm,
                    norm ? fmt::format("norm {:.4g}, want {:.4g} to {:.4g}", *norm, options.min_gradient_norm,
                                       options.max_gradient_norm)
                         : "not measured"});
}

std::string compared(const std::optional<double>& value, const char* relation, double bound) {
  return value ? fmt::format("{:.4g}, want {} {:.4g}", *value, relation, bound) : "not measured";
}

}  // namespace

void check_gates(const GateOptions& options) {
  if (options.min_gradient_norm > options.max_gradient_norm)
    fail_usage(
        "--gate-least-norm {}: is above --gate-largest-norm {}, so that no seed could ever pass; "
        "lower one or raise the other",
        options.min_gradient_norm, options.max_gradient_norm);
}

const char* name_of(Gate gate) {
  const auto index = static_cast<size_t>(gate);
  return index < kGateNames.size() ? kGateNames[index] : "?";
}

bool GateReport::passed() const {
  return std::ranges::all_of(checks, &GateCheck::passed);
}

std::string GateReport::summary() const {
  if (passed()) return fmt::format("{} passed", name_of(gate));
  std::string failed;
  for (const GateCheck& check : checks)
    if (!check.passed)
      failed += fmt::format("{}{} ({})", failed.empty() ? "" : ", ", check.name, check.detail);
  return fmt::format("{} failed: {}", name_of(gate), failed);
}

GateReport gate_g0(const SlotState& seed, int32_t num_blueprints) {
  GateReport report{.gate = Gate::kG0};
  report.checks.push_back({"blueprint_known", seed.blueprint >= 0 && seed.blueprint < num_blueprints,
                           fmt::format("{} of {} blueprints", seed.blueprint, num_blueprints)});
  report.checks.push_back({"operator_known", static_cast<int>(seed.blend_operator) < kNumBlendOperators,
                           name_of(seed.blend_operator)});
  report.checks.push_back(
      {"curve_known", static_cast<int>(seed.curve) < kNumBlendCurves, name_of(seed.curve)});
  report.checks.push_back(
      {"tempo_given", seed.ramp_steps >= 0, fmt::format("{} steps, want at least 0", seed.ramp_steps)});
  report.checks.push_back({"target_in_range", seed.target > 0 && seed.target <= 1,
                           fmt::format("{:.4g}, want above 0 and at most 1", seed.target)});
  return report;
}

GateReport gate_g1(const SlotState& seed) {
  GateReport report{.gate = Gate::kG1};
  report.checks.push_back(stage_is(seed, SeedStage::kGerminated));
  report.checks.push_back(
      {"has_blueprint", seed.blueprint >= 0, fmt::format("blueprint {}", seed.blueprint)});
  return report;
}

GateReport gate_g2(const SlotState& seed, const SeedMeasurements& measured, const GateOptions& options) {
  GateReport report{.gate = Gate::kG2};
  report.checks.push_back(stage_is(seed, SeedStage::kTraining));
  report.checks.push_back({"training_steps", seed.steps_in_stage >= options.min_training_steps,
                           fmt::format("{} of {}", seed.steps_in_stage, options.min_training_steps)});
  check_health(report.checks, measured, options);
  if (options.mode == GateMode::kStrict) {
    const auto& gained = measured.improvement_points;
    report.checks.push_back({"improvement", gained && *gained >= options.min_improvement_points,
                             compared(gained, ">=", options.min_improvement_points)});
    const auto& ratio = measured.gradient_ratio;
    report.checks.push_back({"gradient_ratio", ratio && *ratio >= options.min_gradient_ratio,
                             compared(ratio, ">=", options.min_gradient_ratio)});
  }
  return report;
}

GateReport gate_g3(const SlotState& seed) {
  GateReport report{.gate = Gate::kG3};
  report.checks.push_back(stage_is(seed, SeedStage::kBlending));
  report.checks.push_back({"stays", !is_removing(seed), is_removing(seed) ? "being removed" : "yes"});
  report.checks.push_back(blend_is_at_target(seed));
  return report;
}

GateReport gate_g5(const SlotState& seed, const SeedMeasurements& measured, const GateOptions& options) {
  GateReport report{.gate = Gate::kG5};
  report.checks.push_back(stage_is(seed, SeedStage::kHolding));
  // Mid-ramp it would keep for good an amplitude that nobody asked for.
  report.checks.push_back(blend_is_at_target(seed));
  check_health(report.checks, measured, options);
  if (options.mode == GateMode::kStrict) {
    const auto& gain = measured.contribution_points;
    report.checks.push_back({"contribution", gain && *gain > options.min_contribution_points,
                             compared(gain, ">", options.min_contribution_points)});
  }
  return report;
}

}  // namespace espalier::grow
