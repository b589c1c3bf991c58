#include "espalier/jobs/facts/epoch_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "espalier/jobs/facts/dataset.h"
#include "espalier/run/files/metric_keys.h"

namespace espalier::jobs {
namespace {

using nlohmann::ordered_json;

template <class Value>
ordered_json or_null(const std::optional<Value>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

// Standard error of an accuracy measured on so many samples.
double standard_error(double accuracy, int64_t num_samples) {
  return std::sqrt(accuracy * (1 - accuracy) / static_cast<double>(num_samples));
}

int64_t num_seeds(const train::EpochRecord& epoch) {
  int64_t count = 0;
  for (const train::LaneRecord& lane : epoch.lanes)
    count += std::ranges::count_if(
        lane.slots, [](const train::SlotReport& slot) { return holds_seed(slot.state.stage); });
  return count;
}

}  // namespace

EpochLines::EpochLines(const grow::NetworkStack& population) : blueprints_(population.blueprints().names()) {
  for (const grow::SlotSpec& slot : population.slots()) slots_.push_back(slot.name);
}

std::string EpochLines::action_text(const SeedAction& action) const {
  if (action.op == SeedOp::kWait) return {};
  const std::string& slot = slots_[static_cast<size_t>(action.slot)];
  if (action.op != SeedOp::kGerminate) return fmt::format("{} {}", name_of(action.op), slot);
  return fmt::format("{} {} {}", name_of(action.op), slot,
                     blueprints_[static_cast<size_t>(action.blueprint)]);
}

ordered_json EpochLines::lane_line(const train::EpochRecord& epoch, const train::LaneRecord& lane) const {
  ordered_json line{{"kind", name_of(run::LineKind::kLane)},
                    {"epoch", epoch.epoch},
                    {"lane", lane.lane},
                    {"outcome", name_of(lane.outcome)},
                    {"train_loss", lane.trained.loss},
                    {"train_accuracy", lane.trained.accuracy},
                    {"validation_loss", lane.validated.loss},
                    {"validation_accuracy", lane.validated.accuracy},
                    {"validation_error", standard_error(lane.validated.accuracy, epoch.num_scored)},
                    {"gradient_norm", lane.trained.gradient_norm},
                    {"largest_gradient_norm", lane.trained.largest_norm},
                    {"non_finite_steps", lane.trained.non_finite},
                    {"rate_factor", lane.rate_factor},
                    {"rollbacks", lane.num_rollbacks},
                    {"parameters", lane.num_parameters}};
  if (is_collapse(lane.verdict)) line["collapse"] = name_of(lane.verdict);
  for (const int64_t slot : lane.blamed) line["barred"].push_back(slots_[static_cast<size_t>(slot)]);
  if (lane.trained.loss_scale > 0) {
    line["loss_scale"] = lane.trained.loss_scale;
    line["skipped_steps"] = lane.trained.skipped;
  }
  if (lane.action.op != SeedOp::kWait) {
    line["action"] = action_text(lane.action);
    if (lane.gate.gate != grow::Gate::kNone) line["gate"] = lane.gate.summary();
  }
  for (size_t slot = 0; slot < lane.slots.size(); ++slot) {
    const train::SlotReport& report = lane.slots[slot];
    if (report.state.stage == SeedStage::kDormant) continue;
    ordered_json seed{{"slot", slots_[slot]}, {"stage", name_of(report.state.stage)}};
    if (holds_seed(report.state.stage)) {
      seed["blueprint"] = blueprints_[static_cast<size_t>(report.state.blueprint)];
      seed["operator"] = name_of(report.state.blend_operator);
      seed["amplitude"] = report.state.amplitude;
      seed["gradient_norm"] = or_null(report.measured.gradient_norm);
      seed["contribution_points"] = or_null(report.measured.contribution_points);
    }
    line["slots"].push_back(std::move(seed));
  }
  if (!epoch.is_validated) clear_validation(line);
  return line;
}

ordered_json EpochLines::epoch_line(const train::EpochRecord& epoch, double learning_rate) const {
  const train::LaneMetrics trained = epoch.mean_trained();
  const train::LaneScore validated = epoch.mean_validated();
  const auto accuracy = [](const train::LaneRecord& lane) { return lane.validated.accuracy; };
  const auto [worst, best] = std::ranges::minmax(epoch.lanes, {}, accuracy);
  ordered_json line{{"kind", name_of(run::LineKind::kEpochOfMany)},
                    {"epoch", epoch.epoch},
                    {"lanes", epoch.lanes.size()},
                    {"train_loss", trained.loss},
                    {"train_accuracy", trained.accuracy},
                    {"validation_loss", validated.loss},
                    {"validation_accuracy", validated.accuracy},
                    {"best_validation_accuracy", accuracy(best)},
                    {"worst_validation_accuracy", accuracy(worst)},
                    {"validation_samples", epoch.num_scored},
                    {"gradient_norm", trained.gradient_norm},
                    {"learning_rate", learning_rate},
                    {"retired_lanes", epoch.num_retired()},
                    {"seeds", num_seeds(epoch)},
                    {"time/captures", epoch.graphs.captures},
                    {"time/capture_seconds", epoch.graphs.capture_seconds},
                    {"time/eager_runs", epoch.graphs.eager},
                    {"time/rank_bytes", epoch.bytes_between_ranks},
                    {"seconds", epoch.seconds}};
  if (!epoch.is_validated) clear_validation(line);
  return line;
}

}  // namespace espalier::jobs
