#include "espalier/jobs/facts/output_estimate.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "espalier/core/text/byte_size.h"

namespace espalier::jobs {
namespace {

// TensorBoard's files took half as much as metrics.jsonl in every run that was looked at.
constexpr double kWithEvents = 1.5;
constexpr int64_t kWorthAHint = int64_t{64} << 20;

}  // namespace

int64_t lane_line_bytes(const EpochLines& lines, const grow::NetworkStack& population, int64_t seeds) {
  constexpr double kLongNumber = 1.0 / 3;  // as many digits as most have
  train::EpochRecord epoch{.epoch = 10};
  train::LaneRecord lane{.lane = 10};
  lane.trained.loss = lane.trained.accuracy = lane.validated.loss = lane.validated.accuracy = kLongNumber;
  lane.trained.gradient_norm = lane.trained.largest_norm = kLongNumber;
  lane.num_parameters = 100'000;
  lane.slots.resize(static_cast<size_t>(population.num_slots()));
  for (size_t slot = 0; slot < std::min(lane.slots.size(), static_cast<size_t>(seeds)); ++slot) {
    lane.slots[slot].state.stage = SeedStage::kTraining;
    lane.slots[slot].state.blueprint = 0;
    lane.slots[slot].state.amplitude = static_cast<float>(kLongNumber);
    lane.slots[slot].measured.gradient_norm = kLongNumber;
    lane.slots[slot].measured.contribution_points = kLongNumber;
  }
  return std::ssize(lines.lane_line(epoch, lane).dump()) + 1;
}

std::string output_text(const OutputShape& shape) {
  if (shape.every == 0) return "will write no lines of single networks (--lane-lines 0), and checkpoints";
  const auto bytes =
      static_cast<int64_t>(kWithEvents * static_cast<double>(shape.line_bytes * shape.lanes * shape.steps));
  const int64_t written = (shape.total + shape.every - 1) / shape.every;
  const std::string which = shape.every == 1 ? fmt::format("per {}", shape.unit)
                                             : fmt::format("in every {} {}s", shape.every, shape.unit);
  return fmt::format("will write about {} of metrics and events {}, {} in all {} {}s, and checkpoints{}",
                     format_byte_size(bytes), which, format_byte_size(bytes * written), shape.total,
                     shape.unit,
                     bytes * written > kWorthAHint && shape.every == 1
                         ? fmt::format("; --lane-lines 10 keeps those of every tenth {}", shape.unit)
                         : "");
}

}  // namespace espalier::jobs
