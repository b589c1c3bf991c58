#include "espalier/train/control/recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/core/text/utf8.h"

namespace espalier::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKind = "espalier.recording";
constexpr int64_t kVersion = 1;
// Past these nobody has networks, names or steps.
constexpr int64_t kMostLanes = 4096, kMostEpisodes = 1'000'000, kMostSteps = 1'000'000;
constexpr size_t kMostNames = 4096;

// The fields of an action that its op reads, as core/seed_stage.h says.
struct Reads {
  bool blueprint, blend_operator, ramp, target;
};
Reads reads_of(SeedOp op) {
  switch (op) {
    case SeedOp::kGerminate:
      return {.blueprint = true, .blend_operator = true, .ramp = true, .target = true};
    case SeedOp::kSetAmplitudeTarget:
      return {.blueprint = false, .blend_operator = true, .ramp = true, .target = true};
    case SeedOp::kPrune:
      return {.blueprint = false, .blend_operator = false, .ramp = true, .target = false};
    case SeedOp::kWait:
    case SeedOp::kFossilize:
    case SeedOp::kAdvance:
      break;
  }
  return {};
}

Json json_of(const RecordedAction& recorded, const Recording& all) {
  const SeedAction& action = recorded.action;
  const Reads reads = reads_of(action.op);
  Json json{{"step", recorded.step},
            {"op", name_of(action.op)},
            {"slot", all.slots[static_cast<size_t>(action.slot)]}};
  if (reads.blueprint) json["blueprint"] = all.blueprints[static_cast<size_t>(action.blueprint)];
  if (reads.blend_operator) json["operator"] = name_of(action.blend_operator);
  if (reads.ramp) json["curve"] = name_of(action.curve);
  if (reads.ramp) json["ramp_steps"] = action.steps;
  if (reads.target) json["target"] = action.target;
  return json;
}

Json json_of(const RecordedSeed& seed, const Recording& all) {
  return {{"slot", all.slots[static_cast<size_t>(seed.slot)]},
          {"blueprint", all.blueprints[static_cast<size_t>(seed.blueprint)]},
          {"operator", name_of(seed.blend_operator)},
          {"amplitude", seed.amplitude}};
}

int64_t integer_within(const Json& json, const char* key, int64_t low, int64_t high,
                       const std::string& where) {
  if (!json.is_object() || !json.contains(key)) fail("{}: want '{}'; it is damaged", where, key);
  const int64_t value = integer_field(json, key, low, where);
  if (value < low || value > high)
    fail("{}: '{}': want {} to {}, got {}; it is damaged", where, key, low, high, value);
  return value;
}

const Json& list_in(const Json& json, const char* key, const std::string& where) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) fail("{}: '{}': want a list; it is damaged", where, key);
  return *found;
}

std::vector<std::string> names_in(const Json& json, const char* key, const std::string& where) {
  std::vector<std::string> names;
  for (const Json& name : list_in(json, key, where)) {
    if (!name.is_string() || name.get_ref<const std::string&>().empty())
      fail("{}: '{}': want names; it is damaged", where, key);
    if (names.size() == kMostNames) fail("{}: '{}': want at most {} names", where, key, kMostNames);
    names.push_back(name.get<std::string>());
    if (std::ranges::count(names, names.back()) > 1)
      fail("{}: '{}': names {} twice; it is damaged", where, key, in_quotes(names.back()));
  }
  if (names.empty()) fail("{}: '{}': want at least one name; it is damaged", where, key);
  return names;
}

// The place of a name in a list of the recording's.
int32_t place_in(const Json& json, const char* key, const std::vector<std::string>& names,
                 const std::string& where) {
  const std::string name = text_field(json, key, "", where);
  const auto found = std::ranges::find(names, name);
  if (found == names.end())
    fail("{}: '{}': {} is none of the names in the first line; it is damaged", where, key, in_quotes(name));
  return static_cast<int32_t>(found - names.begin());
}

template <class Enum>
Enum enum_in(const Json& json, const char* key, int count, const std::string& where) {
  const std::string name = text_field(json, key, "", where);
  for (int i = 0; i < count; ++i)
    if (name == name_of(static_cast<Enum>(i))) return static_cast<Enum>(i);
  fail("{}: '{}': {} is no such name; it is damaged", where, key, in_quotes(name));
}

// A number in (0, 1].
float share_in(const Json& json, const char* key, const std::string& where) {
  const auto value = static_cast<float>(number_field(json, key, 0, where));
  if (!(value > 0 && value <= 1))  // NaN too
    fail("{}: '{}': want above 0 and at most 1, got {}; it is damaged", where, key, value);
  return value;
}

RecordedAction action_from(const Json& json, const Recording& all, const std::string& where) {
  RecordedAction recorded{.step = integer_within(json, "step", 1, all.episode_length - 1, where)};
  SeedAction& action = recorded.action;
  action.op = enum_in<SeedOp>(json, "op", kNumSeedOps, where);
  if (action.op == SeedOp::kWait) fail("{}: 'op': WAIT is not recorded; it is damaged", where);
  action.slot = place_in(json, "slot", all.slots, where);
  const Reads reads = reads_of(action.op);
  if (reads.blueprint) action.blueprint = place_in(json, "blueprint", all.blueprints, where);
  if (reads.blend_operator)
    action.blend_operator = enum_in<BlendOperator>(json, "operator", kNumBlendOperators, where);
  if (reads.ramp) action.curve = enum_in<BlendCurve>(json, "curve", kNumBlendCurves, where);
  if (reads.ramp)
    action.steps = static_cast<int32_t>(integer_within(json, "ramp_steps", 0, kMostSteps, where));
  if (reads.target) action.target = share_in(json, "target", where);
  return recorded;
}

RecordedSeed seed_from(const Json& json, const Recording& all, const std::string& where) {
  return {.slot = place_in(json, "slot", all.slots, where),
          .blueprint = place_in(json, "blueprint", all.blueprints, where),
          .blend_operator = enum_in<BlendOperator>(json, "operator", kNumBlendOperators, where),
          .amplitude = share_in(json, "amplitude", where)};
}

RecordedNetwork network_from(const Json& json, const Recording& all, const std::string& where) {
  const auto place = static_cast<int64_t>(all.networks.size());
  const int64_t episode = integer_within(json, "episode", 1, kMostEpisodes, where);
  const int64_t lane = integer_within(json, "lane", 0, kMostLanes - 1, where);
  if (episode != place / all.lanes + 1 || lane != place % all.lanes)
    fail("{}: want episode {}, lane {}, got episode {}, lane {}; lines are missing, or out of order", where,
         place / all.lanes + 1, place % all.lanes, episode, lane);
  RecordedNetwork network;
  for (const Json& each : list_in(json, "actions", where)) {
    network.actions.push_back(action_from(each, all, where));
    if (network.actions.size() > 1 &&
        network.actions.back().step <= network.actions[network.actions.size() - 2].step)
      fail("{}: 'actions': want steps that rise, got {} after {}; it is damaged", where,
           network.actions.back().step, network.actions[network.actions.size() - 2].step);
  }
  for (const Json& each : list_in(json, "seeds", where)) {
    network.seeds.push_back(seed_from(each, all, where));
    if (std::ranges::count(network.seeds, network.seeds.back().slot, &RecordedSeed::slot) > 1)
      fail("{}: 'seeds': slot {} stands there twice; it is damaged", where,
           in_quotes(all.slots[static_cast<size_t>(network.seeds.back().slot)]));
  }
  return network;
}

Recording header_from(const Json& json, const std::string& where) {
  if (!json.is_object() || !json.contains("kind") || json["kind"] != kKind)
    fail("{}: is no recording of decisions that `espalier evaluate` wrote: want kind '{}'", where, kKind);
  if (const int64_t version = integer_within(json, "version", 0, kMostSteps, where); version != kVersion)
    fail("{}: is a recording of version {}, and this program reads {}", where, version, kVersion);
  Recording recording{.controller = text_field(json, "controller", "", where),
                      .host = text_field(json, "host", "", where),
                      .slots = names_in(json, "slots", where),
                      .blueprints = names_in(json, "blueprints", where),
                      .lanes = integer_within(json, "lanes", 1, kMostLanes, where),
                      .episodes = integer_within(json, "episodes", 1, kMostEpisodes, where),
                      .episode_length = integer_within(json, "episode_length", 2, kMostSteps, where),
                      .batches_per_step = integer_within(json, "batches_per_step", 0, 1'000'000'000, where)};
  const std::optional<uint64_t> seed =
      json.contains("seed") ? whole_number<uint64_t>(json["seed"]) : std::nullopt;
  if (!seed) fail("{}: 'seed': want a whole number from 0 on; it is damaged", where);
  recording.seed = *seed;
  return recording;
}

}  // namespace

bool RecordedAction::operator==(const RecordedAction& other) const {
  const SeedAction &a = action, &b = other.action;
  return step == other.step && a.op == b.op && a.slot == b.slot && a.blueprint == b.blueprint &&
         a.blend_operator == b.blend_operator && a.curve == b.curve && a.steps == b.steps &&
         a.target == b.target;
}

std::string text_of(const Recording& recording) {
  const auto line_of = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  std::string text = line_of({{"kind", kKind},
                              {"version", kVersion},
                              {"controller", recording.controller},
                              {"host", recording.host},
                              {"slots", recording.slots},
                              {"blueprints", recording.blueprints},
                              {"lanes", recording.lanes},
                              {"episodes", recording.episodes},
                              {"episode_length", recording.episode_length},
                              {"batches_per_step", recording.batches_per_step},
                              {"seed", recording.seed}});
  for (size_t i = 0; i < recording.networks.size(); ++i) {
    const RecordedNetwork& network = recording.networks[i];
    const auto place = static_cast<int64_t>(i);
    Json line{{"episode", place / recording.lanes + 1},
              {"lane", place % recording.lanes},
              {"actions", Json::array()},
              {"seeds", Json::array()}};
    for (const RecordedAction& action : network.actions)
      line["actions"].push_back(json_of(action, recording));
    for (const RecordedSeed& seed : network.seeds) line["seeds"].push_back(json_of(seed, recording));
    text += line_of(line);
  }
  return text;
}

Recording parse_recording(std::string_view text, const std::string& file) {
  Recording recording;
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    number += 1;
    const std::string where = fmt::format("'{}': line {}", file, number);
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (number == 1) {
      recording = header_from(json, where);
      continue;
    }
    if (!json.is_object()) fail("{}: is no JSON object; it is damaged", where);
    if (std::ssize(recording.networks) == recording.lanes * recording.episodes)
      fail("{}: want the networks of {} episodes of {} lanes, got more; it is damaged", where,
           recording.episodes, recording.lanes);
    recording.networks.push_back(network_from(json, recording, where));
  }
  if (number == 0) fail("'{}': is empty: want a recording of decisions that `espalier evaluate` wrote", file);
  if (std::ssize(recording.networks) != recording.lanes * recording.episodes)
    fail("'{}': want the networks of {} episodes of {} lanes, got {}; its end is missing", file,
         recording.episodes, recording.lanes, recording.networks.size());
  return recording;
}

Recording read_recording(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) text << file.rdbuf();
  if (!file || !text)  // a folder can be opened, and nothing more
    fail_usage("'{}': the recording cannot be read; want a file that `espalier evaluate` wrote", path);
  return parse_recording(text.str(), path);
}

}  // namespace espalier::train
