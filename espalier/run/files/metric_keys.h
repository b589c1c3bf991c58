// Every key that a line of metrics.jsonl may have, by the kind of line, and where its values are drawn: one
// list for those who write lines (jobs) and those who read them (watch).
//
// Kept true: a writer emits no kind and no key that is not listed (debug builds refuse such a line), and none
// is listed that no writer emits; so that nothing measured stays unseen, and no curve stays empty
// (tests/jobs/metric_keys_test.cpp lets the jobs write).
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

namespace espalier::run {

enum class LineKind : uint8_t {
  kLane,          // one network after an epoch or a step
  kSlot,          // inside it: one of `slots`
  kEpochOfMany,   // "epoch" of a population: it counts its `lanes`
  kEpochOfOne,    // "epoch" of a multi-stream network
  kEpochStream,   // inside it: one of `streams`
  kRound,         // a round of PPO
  kResult,        // the result of any job
  kResultStream,  // inside it: one of `streams`
  kLaneResult,
  kMemoryFormat,
  kEvaluated,
  kCompared,
  kEvaluatedLane,
};

enum class OnPage : uint8_t { kNo, kCurve };  // whether report.html draws a curve of its values

struct MetricKey {
  LineKind line;
  std::string_view key;  // a '*' stands for any text: "losses/*"
  // Its curve in TensorBoard, before what the line gives (`/lane_03`, `/stream_rgb`), or behind `result/`,
  // with the text that '*' stands for; empty: none, since the value is no number or says where the line
  // stands.
  std::string_view tag = {};
  OnPage on_page = OnPage::kNo;
};

std::span<const MetricKey> metric_keys();

// None where the key is not listed for such lines.
const MetricKey* find_metric_key(LineKind line, std::string_view key);

// The tag of a key that was found.
std::string tag_of(const MetricKey& found, std::string_view key);

// Keys of these lines with a curve on the page.
std::set<std::string> keys_on_page(LineKind line);

// What lines say in "kind": every writer begins its lines with it. Empty for what is inside of one.
const char* name_of(LineKind line);
// None for a line of a kind that is not listed.
std::optional<LineKind> kind_of_line(const nlohmann::ordered_json& line);
std::optional<LineKind> kind_of_line(const nlohmann::json& line);

// The first kind or key of the line, or inside of it, that is not listed, in a few words; none where all are.
std::optional<std::string> unlisted_in(const nlohmann::ordered_json& line);

}  // namespace espalier::run
