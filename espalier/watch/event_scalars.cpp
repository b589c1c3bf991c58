#include "espalier/watch/event_scalars.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "espalier/core/error.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

// What says where a line stands, rather than what was measured there.
constexpr std::array<std::string_view, 5> kPlaceKeys{"kind", "epoch", "round", "step", "lane"};

std::string kind_of(const ordered_json& line) {
  const auto kind = line.find("kind");
  return kind != line.end() && kind->is_string() ? kind->get<std::string>() : std::string();
}

std::optional<int64_t> integer_in(const ordered_json& line, const char* key) {
  const auto value = line.find(key);
  if (value == line.end() || !value->is_number_integer()) return std::nullopt;
  return value->get<int64_t>();
}

// A mean has another name than the histogram over lanes: one tag cannot be both.
std::string population_tag(const std::string& key) {
  if (key == "gradient_norm") return "lanes/mean_gradient_norm";
  if (key == "lanes") return "lanes/count";
  if (key == "seeds") return "growth/seeds";
  return "lanes/" + key;
}

std::string epoch_tag(const ordered_json& line, const std::string& key) {
  if (key == "captures" || key.find("seconds") != std::string::npos) return "time/" + key;
  return line.contains("lanes") ? population_tag(key) : "charts/" + key;
}

std::string tag_of(const ordered_json& line, const std::string& kind, const std::string& key) {
  if (kind == "epoch") return epoch_tag(line, key);
  if (kind == "round") return key.find('/') == std::string::npos ? "charts/" + key : key;
  if (kind == "lane") return fmt::format("lane/{}/{}", *integer_in(line, "lane"), key);
  return "result/" + key;
}

bool is_known(const std::string& kind) {
  return kind == "epoch" || kind == "round" || kind == "result" || kind == "lane";
}

bool has_curves(const ordered_json& line, const std::string& kind) {
  if (kind != "lane") return is_known(kind);
  const std::optional<int64_t> lane = integer_in(line, "lane");
  return lane && *lane >= 0 && *lane < kLanesWithCurves;
}

void append_streams(std::vector<EventScalar>& scalars, const std::string& prefix, int64_t step,
                    const ordered_json& streams) {
  for (const auto& [name, stream] : streams.items()) {
    if (!stream.is_object()) continue;
    for (const auto& [key, value] : stream.items())
      if (value.is_number())
        scalars.push_back({fmt::format("{}streams/{}/{}", prefix, name, key), step, value.get<double>()});
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
  if (!line.is_object()) return {};
  const std::string kind = kind_of(line);
  if (!has_curves(line, kind)) return {};
  std::vector<EventScalar> scalars;
  for (const auto& [key, value] : line.items()) {
    if (key == "streams" && value.is_object())
      append_streams(scalars, kind == "result" ? "result/" : "", step, value);
    else if (value.is_number() && std::ranges::find(kPlaceKeys, key) == kPlaceKeys.end())
      scalars.push_back({tag_of(line, kind, key), step, value.get<double>()});
  }
  return scalars;
}

MetricEvents::MetricEvents(EventFile& file, int64_t episode_length)
    : file_(file), episode_length_(episode_length) {
  if (episode_length < 1) fail("events of an episode of {} steps: want at least 1", episode_length);
}

void MetricEvents::add(const ordered_json& line) {
  if (!line.is_object()) return;
  const std::string kind = kind_of(line);
  const std::optional<int64_t> step = step_of(line, episode_length_);
  if (!is_known(kind) || (!step && kind != "result")) return;
  if (kind != "lane" || *step != last_step_) flush();
  last_step_ = step.value_or(last_step_);
  for (const EventScalar& scalar : scalars_of(line, last_step_))
    file_.scalar(scalar.tag, scalar.step, scalar.value);
  if (kind == "lane") collect(line);
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
  file_.histogram("lanes/gradient_norm", last_step_, norms);
  file_.flush();
}

}  // namespace espalier::watch
