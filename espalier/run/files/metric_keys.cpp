#include "espalier/run/files/metric_keys.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

namespace espalier::run {
namespace {

using enum LineKind;
using enum OnPage;

// One name for one thing in all jobs. What is measured of several (lanes, streams) and of all together is a
// group of tags: `train_loss/all` is the mean over lanes, or the whole multi-stream network's,
// `train_loss/lane_00` a lane's, `train_loss/stream_rgb` a stream's.
constexpr auto kKeys = std::to_array<MetricKey>({
    {kLane, "kind"},
    {kLane, "epoch"},
    {kLane, "round"},
    {kLane, "step"},
    {kLane, "lane"},
    {kLane, "outcome"},
    {kLane, "train_loss", "train_loss", kCurve},
    {kLane, "train_accuracy", "train_accuracy", kCurve},
    {kLane, "validation_loss", "validation_loss", kCurve},
    {kLane, "validation_accuracy", "validation_accuracy", kCurve},
    {kLane, "validation_error", "validation_error"},
    {kLane, "gradient_norm", "gradient_norm", kCurve},
    {kLane, "largest_gradient_norm", "largest_gradient_norm"},
    {kLane, "non_finite_steps", "non_finite_steps"},
    {kLane, "rate_factor", "rate_factor"},
    {kLane, "rollbacks", "rollbacks"},
    {kLane, "collapse"},
    {kLane, "barred"},
    {kLane, "parameters", "parameters", kCurve},
    {kLane, "loss_scale", "loss_scale"},
    {kLane, "skipped_steps", "skipped_steps"},
    {kLane, "action"},
    {kLane, "gate"},
    {kLane, "slots"},
    {kLane, "reward", "reward"},
    {kLane, "reward_*", "reward_*"},

    {kSlot, "slot"},
    {kSlot, "stage"},
    {kSlot, "blueprint"},
    {kSlot, "operator"},
    {kSlot, "amplitude"},
    {kSlot, "gradient_norm"},
    {kSlot, "contribution_points"},

    {kEpochOfMany, "kind"},
    {kEpochOfMany, "epoch"},
    {kEpochOfMany, "lanes", "charts/lanes"},
    {kEpochOfMany, "train_loss", "train_loss/all", kCurve},
    {kEpochOfMany, "train_accuracy", "train_accuracy/all", kCurve},
    {kEpochOfMany, "validation_loss", "validation_loss/all", kCurve},
    {kEpochOfMany, "validation_accuracy", "validation_accuracy/all", kCurve},
    {kEpochOfMany, "best_validation_accuracy", "validation_accuracy/best", kCurve},
    {kEpochOfMany, "worst_validation_accuracy", "validation_accuracy/worst", kCurve},
    {kEpochOfMany, "validation_samples", "charts/validation_samples"},
    {kEpochOfMany, "gradient_norm", "gradient_norm/all", kCurve},
    {kEpochOfMany, "learning_rate", "learning_rate/all", kCurve},
    {kEpochOfMany, "retired_lanes", "charts/lanes_lost", kCurve},
    {kEpochOfMany, "seeds", "growth/seeds", kCurve},
    {kEpochOfMany, "time/captures", "time/captures"},
    {kEpochOfMany, "time/capture_seconds", "time/capture_seconds"},
    {kEpochOfMany, "time/eager_runs", "time/eager_runs"},
    {kEpochOfMany, "time/rank_bytes", "time/rank_bytes"},
    {kEpochOfMany, "seconds", "time/seconds", kCurve},

    {kEpochOfOne, "kind"},
    {kEpochOfOne, "epoch"},
    {kEpochOfOne, "train_loss", "train_loss/all", kCurve},
    {kEpochOfOne, "train_accuracy", "train_accuracy/all", kCurve},
    {kEpochOfOne, "validation_loss", "validation_loss/all", kCurve},
    {kEpochOfOne, "validation_accuracy", "validation_accuracy/all", kCurve},
    {kEpochOfOne, "validation_mean_class_accuracy", "validation_mean_class_accuracy/all", kCurve},
    {kEpochOfOne, "gradient_norm", "gradient_norm/all", kCurve},
    {kEpochOfOne, "learning_rate", "learning_rate/all", kCurve},
    {kEpochOfOne, "balance", "charts/balance", kCurve},
    {kEpochOfOne, "non_finite", "non_finite_steps/all"},
    {kEpochOfOne, "norm_fallbacks", "norm_fallbacks/all"},
    {kEpochOfOne, "skipped", "skipped_steps/all"},
    {kEpochOfOne, "loss_scale", "loss_scale/all"},
    {kEpochOfOne, "best"},
    {kEpochOfOne, "streams"},
    {kEpochOfOne, "time/captures", "time/captures"},
    {kEpochOfOne, "time/capture_seconds", "time/capture_seconds"},
    {kEpochOfOne, "time/eager_runs", "time/eager_runs"},
    {kEpochOfOne, "time/rank_bytes", "time/rank_bytes"},
    {kEpochOfOne, "seconds", "time/seconds", kCurve},

    {kEpochStream, "gradient_norm", "gradient_norm", kCurve},
    {kEpochStream, "norm_fallbacks", "norm_fallbacks"},
    {kEpochStream, "train_loss", "train_loss"},
    {kEpochStream, "train_accuracy", "train_accuracy", kCurve},
    {kEpochStream, "validation_accuracy", "validation_accuracy", kCurve},
    {kEpochStream, "share", "share", kCurve},
    {kEpochStream, "frozen", {}, kCurve},

    {kRound, "kind"},
    {kRound, "round"},
    {kRound, "charts/episodic_return", "charts/episodic_return", kCurve},
    {kRound, "charts/episodic_length", "charts/episodic_length", kCurve},
    {kRound, "charts/SPS", "charts/SPS", kCurve},
    {kRound, "charts/learning_rate", "charts/learning_rate", kCurve},
    {kRound, "losses/*", "losses/*", kCurve},
    {kRound, "heads/*", "heads/*"},
    {kRound, "rewards/*", "rewards/*", kCurve},
    {kRound, "lanes/validation_accuracy", "validation_accuracy/all", kCurve},
    {kRound, "lanes/best_validation_accuracy", "validation_accuracy/best", kCurve},
    {kRound, "lanes/lost", "charts/lanes_lost", kCurve},
    {kRound, "growth/seeds_kept", "growth/seeds_kept", kCurve},
    {kRound, "growth/added_parameters", "growth/added_parameters", kCurve},
    {kRound, "time/episode_seconds", "time/episode_seconds", kCurve},
    {kRound, "time/update_seconds", "time/update_seconds", kCurve},
    {kRound, "time/*_ms", "time/*_ms", kCurve},
    {kRound, "time/captures", "time/captures", kCurve},
    {kRound, "time/capture_seconds", "time/capture_seconds", kCurve},
    {kRound, "time/eager_runs", "time/eager_runs", kCurve},
    {kRound, "time/rank_bytes", "time/rank_bytes"},
    {kRound, "time/graphs_kept", "time/graphs_kept", kCurve},
    {kRound, "time/device_mib", "time/device_mib", kCurve},

    {kResult, "kind"},
    {kResult, "test_loss", "test_loss"},
    {kResult, "test_accuracy", "test_accuracy"},
    {kResult, "test_mean_class_accuracy", "test_mean_class_accuracy"},
    {kResult, "best_epoch", "best_epoch"},
    {kResult, "streams"},
    {kResult, "classes"},
    {kResult, "confusion"},
    {kResult, "rounds", "rounds"},
    {kResult, "episodes", "episodes"},
    {kResult, "first_return", "first_return"},
    {kResult, "last_return", "last_return"},
    {kResult, "validation_accuracy", "validation_accuracy"},
    {kResult, "seconds", "seconds"},
    {kResult, "illegal_actions", "illegal_actions"},

    {kResultStream, "share", "share"},
    {kResultStream, "accuracy_without", "accuracy_without"},
    {kResultStream, "accuracy_alone", "accuracy_alone"},

    {kLaneResult, "kind"},
    {kLaneResult, "lane"},
    {kLaneResult, "test_loss"},
    {kLaneResult, "test_accuracy"},
    {kLaneResult, "parameters"},
    {kLaneResult, "seeds_kept"},

    {kMemoryFormat, "kind"},
    {kMemoryFormat, "memory_format"},
    {kMemoryFormat, "time/step_ms"},
    {kMemoryFormat, "time/channels_last_step_ms"},

    {kEvaluated, "kind"},
    {kEvaluated, "controller"},
    {kEvaluated, "episodes"},
    {kEvaluated, "test_accuracy"},
    {kEvaluated, "test_accuracy_95"},
    {kEvaluated, "test_accuracy_over_first"},
    {kEvaluated, "test_accuracy_over_first_95"},
    {kEvaluated, "test_accuracy_over_first_p"},
    {kEvaluated, "return"},
    {kEvaluated, "return_95"},
    {kEvaluated, "added_parameters"},
    {kEvaluated, "added_parameters_95"},
    {kEvaluated, "seeds_kept"},
    {kEvaluated, "seeds_kept_95"},
    {kEvaluated, "lost"},
    {kEvaluated, "illegal_actions"},
    {kEvaluated, "intervals_over"},

    {kCompared, "kind"},
    {kCompared, "controller"},
    {kCompared, "over"},
    {kCompared, "test_accuracy_difference"},
    {kCompared, "test_accuracy_difference_95"},
    {kCompared, "test_accuracy_difference_p"},

    {kEvaluatedLane, "kind"},
    {kEvaluatedLane, "controller"},
    {kEvaluatedLane, "episode"},
    {kEvaluatedLane, "lane"},
    {kEvaluatedLane, "test_accuracy"},
    {kEvaluatedLane, "return"},
    {kEvaluatedLane, "parameters"},
    {kEvaluatedLane, "added_parameters"},
    {kEvaluatedLane, "seeds_kept"},
    {kEvaluatedLane, "rollbacks"},
    {kEvaluatedLane, "illegal_actions"},
    {kEvaluatedLane, "rewards/*"},
});

// What stands for the pattern's '*'; empty text where it has none; none where they do not match.
std::optional<std::string_view> matched(std::string_view pattern, std::string_view key) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == key ? std::optional(std::string_view()) : std::nullopt;
  const std::string_view head = pattern.substr(0, star), tail = pattern.substr(star + 1);
  if (key.size() <= head.size() + tail.size() || !key.starts_with(head) || !key.ends_with(tail))
    return std::nullopt;
  return key.substr(head.size(), key.size() - head.size() - tail.size());
}

constexpr auto kKindsOfLines =
    std::to_array<LineKind>({kLane, kEpochOfMany, kEpochOfOne, kRound, kResult, kLaneResult, kMemoryFormat,
                             kEvaluated, kCompared, kEvaluatedLane});

template <class Json>
std::optional<LineKind> kind_of(const Json& line) {
  if (!line.is_object()) return std::nullopt;
  const auto kind = line.find("kind");
  if (kind == line.end() || !kind->is_string()) return std::nullopt;
  const auto* const found =
      std::ranges::find(kKindsOfLines, kind->template get_ref<const std::string&>(),
                        [](LineKind line_kind) { return std::string_view(name_of(line_kind)); });
  if (found == kKindsOfLines.end()) return std::nullopt;
  return *found == kEpochOfMany && !line.contains("lanes") ? kEpochOfOne : *found;
}

std::optional<std::string> unlisted_among(LineKind kind, const nlohmann::ordered_json& values) {
  for (const auto& [key, value] : values.items())
    if (find_metric_key(kind, key) == nullptr) return "the key '" + key + "'";
  return std::nullopt;
}

}  // namespace

std::span<const MetricKey> metric_keys() {
  return kKeys;
}

const MetricKey* find_metric_key(LineKind line, std::string_view key) {
  const auto* const found = std::ranges::find_if(
      kKeys, [&](const MetricKey& each) { return each.line == line && matched(each.key, key).has_value(); });
  return found == kKeys.end() ? nullptr : found;
}

std::string tag_of(const MetricKey& found, std::string_view key) {
  std::string tag(found.tag);
  if (const size_t star = tag.find('*'); star != tag.npos)
    tag.replace(star, 1, matched(found.key, key).value_or(std::string_view()));
  return tag;
}

std::set<std::string> keys_on_page(LineKind line) {
  std::set<std::string> keys;
  for (const MetricKey& each : kKeys)
    if (each.line == line && each.on_page == OnPage::kCurve) keys.emplace(each.key);
  return keys;
}

const char* name_of(LineKind line) {
  switch (line) {
    case kLane:
      return "lane";
    case kEpochOfMany:
    case kEpochOfOne:
      return "epoch";
    case kRound:
      return "round";
    case kResult:
      return "result";
    case kLaneResult:
      return "lane_result";
    case kMemoryFormat:
      return "memory_format";
    case kEvaluated:
      return "evaluated";
    case kCompared:
      return "compared";
    case kEvaluatedLane:
      return "evaluated_lane";
    case kSlot:
    case kEpochStream:
    case kResultStream:
      break;
  }
  return "";
}

std::optional<LineKind> kind_of_line(const nlohmann::ordered_json& line) {
  return kind_of(line);
}

std::optional<LineKind> kind_of_line(const nlohmann::json& line) {
  return kind_of(line);
}

std::optional<std::string> unlisted_in(const nlohmann::ordered_json& line) {
  const std::optional<LineKind> kind = kind_of_line(line);
  if (!kind) return "a line of an unknown kind";
  std::optional<std::string> unlisted = unlisted_among(*kind, line);
  const auto inside = [&](LineKind of, const char* key) {
    const auto parts = line.find(key);
    if (parts == line.end()) return;
    for (const auto& part : *parts)
      if (!unlisted) unlisted = unlisted_among(of, part);
  };
  inside(kSlot, "slots");
  inside(kind == kResult ? kResultStream : kEpochStream, "streams");
  return unlisted;
}

}  // namespace espalier::run
