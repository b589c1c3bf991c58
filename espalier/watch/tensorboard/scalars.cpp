#include "espalier/watch/tensorboard/scalars.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/run/files/metric_keys.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

std::optional<int64_t> integer_in(const ordered_json& line, const char* key) {
  const auto value = line.find(key);
  if (value == line.end() || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

// What stands around the tags of a line, where it has curves.
struct Frame {
  std::string before;
  std::string behind;
};

std::optional<Frame> frame_of(const ordered_json& line, run::LineKind kind) {
  switch (kind) {
    case run::LineKind::kEpochOfMany:
    case run::LineKind::kEpochOfOne:
    case run::LineKind::kRound:
      return Frame{};
    case run::LineKind::kResult:
      return Frame{.before = "result/"};
    case run::LineKind::kLane: {
      const std::optional<int64_t> lane = integer_in(line, "lane");
      if (!lane || *lane < 0 || *lane >= kLanesWithCurves) return std::nullopt;
      return Frame{.behind = fmt::format("/lane_{:02}", *lane)};
    }
    default:
      return std::nullopt;
  }
}

bool has_curves(run::LineKind kind) {
  return kind == run::LineKind::kEpochOfMany || kind == run::LineKind::kEpochOfOne ||
         kind == run::LineKind::kRound || kind == run::LineKind::kResult || kind == run::LineKind::kLane;
}

void append_scalars(std::vector<EventScalar>& scalars, const Frame& frame, int64_t step, run::LineKind kind,
                    const ordered_json& values) {
  for (const auto& [key, value] : values.items()) {
    const run::MetricKey* const found = run::find_metric_key(kind, key);
    if (found == nullptr || found->tag.empty() || !value.is_number()) continue;
    scalars.push_back({frame.before + run::tag_of(*found, key) + frame.behind, step, value.get<double>()});
  }
}

}  // namespace

std::optional<int64_t> step_of(const ordered_json& line, int64_t episode_length) {
  if (!line.is_object()) return std::nullopt;
  const std::optional<int64_t> round = integer_in(line, "round");
  if (!round) return integer_in(line, "epoch");
  const std::optional<int64_t> in_round = integer_in(line, "step");
  int64_t step = 0;
  if (__builtin_sub_overflow(*round, in_round ? 1 : 0, &step) ||
      __builtin_mul_overflow(step, episode_length, &step) ||
      __builtin_add_overflow(step, in_round.value_or(0), &step))
    return std::nullopt;
  return step;
}

std::vector<EventScalar> scalars_of(const ordered_json& line, int64_t step) {
  const std::optional<run::LineKind> kind = run::kind_of_line(line);
  const std::optional<Frame> frame = kind ? frame_of(line, *kind) : std::nullopt;
  if (!frame) return {};
  std::vector<EventScalar> scalars;
  append_scalars(scalars, *frame, step, *kind, line);
  const auto streams = line.find("streams");
  if (streams == line.end() || !streams->is_object()) return scalars;
  const run::LineKind inside =
      *kind == run::LineKind::kResult ? run::LineKind::kResultStream : run::LineKind::kEpochStream;
  for (const auto& [name, stream] : streams->items())
    if (stream.is_object())
      append_scalars(scalars, {.before = frame->before, .behind = "/stream_" + name}, step, inside, stream);
  return scalars;
}

MetricEvents::MetricEvents(EventFile& file, int64_t episode_length)
    : file_(file), episode_length_(episode_length) {
  if (episode_length < 1) fail("events of an episode of {} steps: want at least 1", episode_length);
  std::vector<LayoutChart> charts;
  for (const run::MetricKey& each : run::metric_keys())
    if (each.line == run::LineKind::kLane && !each.tag.empty() && each.tag.find('*') == each.tag.npos)
      charts.push_back({std::string(each.tag), fmt::format("{}/.+", each.tag)});
  file_.layout("lanes", charts);
}

void MetricEvents::add(const ordered_json& line) {
  const std::optional<run::LineKind> kind = run::kind_of_line(line);
  const std::optional<int64_t> step = step_of(line, episode_length_);
  if (!kind || !has_curves(*kind) || (!step && *kind != run::LineKind::kResult)) return;
  const bool is_lane = *kind == run::LineKind::kLane;
  if (!is_lane || *step != last_step_) flush();
  last_step_ = step.value_or(last_step_);
  for (const EventScalar& scalar : scalars_of(line, last_step_))
    file_.scalar(scalar.tag, scalar.step, scalar.value);
  if (is_lane) collect(line);
  file_.flush();
}

void MetricEvents::collect(const ordered_json& line) {
  const auto norm = line.find("gradient_norm");
  if (norm != line.end() && norm->is_number()) gradient_norms_.push_back(norm->get<double>());
}

void MetricEvents::resume_after(const ordered_json& last_line) {
  last_step_ = step_of(last_line, episode_length_).value_or(0);
  file_.session_start(last_step_ + 1);
  file_.flush();
}

void MetricEvents::flush() {
  const std::vector<double> norms = std::exchange(gradient_norms_, {});
  file_.histogram("gradient_norm/lanes", last_step_, norms);
  file_.flush();
}

}  // namespace espalier::watch
