#include "espalier/grow/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "espalier/core/error.h"
#include "espalier/core/seed_state_json.h"
#include "espalier/core/text/json_fields.h"
#include "espalier/core/text/utf8.h"

namespace espalier::grow {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKindKey = "kind";
constexpr const char* kKind = "espalier.network";
constexpr const char* kNetworkKey = "network";
// Past this nobody has images, channels or classes, and products still fit 64 bits.
constexpr int64_t kMostPixels = 65535;
constexpr size_t kMostSeeds = 4096;

int64_t size_field(const Json& json, const char* key, std::string_view where) {
  const int64_t size = integer_field(json, key, 0, where);
  if (size < 1 || size > kMostPixels)
    fail("{}: '{}': want 1 to {}, got {}; it is damaged", where, key, kMostPixels, size);
  return size;
}

const Json& list_field(const Json& json, const char* key, std::string_view where) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array()) fail("{}: '{}': want a list; it is damaged", where, key);
  return *found;
}

// One finite number per channel.
std::vector<double> numbers_field(const Json& json, const char* key, int64_t count, std::string_view where) {
  std::vector<double> numbers;
  for (const Json& each : list_field(json, key, where)) {
    if (!each.is_number() || !std::isfinite(each.get<double>()))
      fail("{}: '{}': want finite numbers, got a JSON {}; it is damaged", where, key, each.type_name());
    numbers.push_back(each.get<double>());
  }
  if (std::ssize(numbers) != count)
    fail("{}: '{}': want {} numbers, one for each channel, got {}; it is damaged", where, key, count,
         numbers.size());
  return numbers;
}

std::optional<double> optional_number(const Json& json, const char* key, std::string_view where) {
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return std::nullopt;
  return number_field(json, key, 0, where);
}

Json json_of(const SeedDescription& seed) {
  Json json{{"slot", seed.slot}, {"blueprint", seed.blueprint}};
  Json state = seed.state;
  state.erase("blueprint");
  json.update(state);
  return json;
}

SeedDescription seed_from(const Json& json, std::string_view where) {
  SeedDescription seed{.slot = text_field(json, "slot", "", where),
                       .blueprint = text_field(json, "blueprint", "", where)};
  Json state = json;
  state.erase("slot");
  state["blueprint"] = 0;
  try {
    state.get_to(seed.state);
  } catch (const nlohmann::json::exception&) {
    fail("{}: the state of the seed in slot {} is damaged", where, in_quotes(seed.slot));
  } catch (const std::invalid_argument&) {
    fail("{}: the state of the seed in slot {} is damaged", where, in_quotes(seed.slot));
  }
  if (const auto fault = fault_in(seed.state))
    fail("{}: the state of the seed in slot {} is damaged: {}", where, in_quotes(seed.slot), *fault);
  if (!holds_seed(seed.state.stage) || seed.slot.empty() || seed.blueprint.empty())
    fail("{}: 'seeds': want a slot, a blueprint and a stage with a seed, got {}, {} and {}; it is damaged",
         where, in_quotes(seed.slot), in_quotes(seed.blueprint), name_of(seed.state.stage));
  return seed;
}

}  // namespace

std::string NetworkDescription::image_text() const {
  return fmt::format("{} x {} x {}", channels, height, width);
}

bool is_felt(const SeedDescription& seed) {
  return is_felt(seed.state);
}

Json to_json(const NetworkDescription& network) {
  const NetworkOrigin& origin = network.origin;
  Json seeds = Json::array();
  for (const SeedDescription& seed : network.seeds) seeds.push_back(json_of(seed));
  Json from{{"run", origin.run},     {"data", origin.data},       {"lane", origin.lane},
            {"epoch", origin.epoch}, {"version", origin.version}, {"commit", origin.commit}};
  if (origin.validation_accuracy) from["validation_accuracy"] = *origin.validation_accuracy;
  if (origin.test_accuracy) from["test_accuracy"] = *origin.test_accuracy;
  return {{"host", network.host},
          {"field", network.field},
          {"channels", network.channels},
          {"height", network.height},
          {"width", network.width},
          {"full_scale", network.full_scale},
          {"mean", network.mean},
          {"deviation", network.deviation},
          {"classes", network.classes},
          {"seeds", seeds},
          {"origin", from}};
}

NetworkDescription network_from_json(const Json& json, std::string_view where) {
  NetworkDescription network{.host = text_field(json, "host", "", where),
                             .field = text_field(json, "field", "", where),
                             .channels = size_field(json, "channels", where),
                             .height = size_field(json, "height", where),
                             .width = size_field(json, "width", where),
                             .full_scale = size_field(json, "full_scale", where)};
  if (network.full_scale != 255 && network.full_scale != 65535)
    fail("{}: 'full_scale': want 255 or 65535, got {}; it is damaged", where, network.full_scale);
  network.mean = numbers_field(json, "mean", network.channels, where);
  network.deviation = numbers_field(json, "deviation", network.channels, where);
  if (std::ranges::any_of(network.deviation, [](double each) { return each <= 0; }))
    fail("{}: 'deviation': want numbers above 0; it is damaged", where);
  for (const Json& name : list_field(json, "classes", where)) {
    if (!name.is_string())
      fail("{}: 'classes': want names, got a JSON {}; it is damaged", where, name.type_name());
    network.classes.push_back(name.get<std::string>());
  }
  if (network.classes.empty()) fail("{}: 'classes': want at least one name; it is damaged", where);
  for (const Json& seed : list_field(json, "seeds", where)) {
    if (network.seeds.size() == kMostSeeds)
      fail("{}: 'seeds': want at most {}; it is damaged", where, kMostSeeds);
    network.seeds.push_back(seed_from(seed, where));
    const std::string& slot = network.seeds.back().slot;
    if (std::ranges::count(network.seeds, slot, &SeedDescription::slot) > 1)
      fail("{}: 'seeds': slot {} stands there twice; it is damaged", where, in_quotes(slot));
  }
  const Json from = object_field(json, "origin", where);
  network.origin = {.run = text_field(from, "run", "", where),
                    .data = text_field(from, "data", "", where),
                    .lane = integer_field(from, "lane", 0, where),
                    .epoch = integer_field(from, "epoch", 0, where),
                    .validation_accuracy = optional_number(from, "validation_accuracy", where),
                    .test_accuracy = optional_number(from, "test_accuracy", where),
                    .version = text_field(from, "version", "", where),
                    .commit = text_field(from, "commit", "", where)};
  return network;
}

Metadata metadata_of(const NetworkDescription& network) {
  return {{kKindKey, kKind},
          {kNetworkKey, to_json(network).dump(-1, ' ', false, Json::error_handler_t::replace)}};
}

NetworkDescription network_description(const Metadata& metadata, const std::string& file) {
  const auto kind = metadata.find(kKindKey);
  const auto text = metadata.find(kNetworkKey);
  if (kind == metadata.end() || kind->second != kKind || text == metadata.end())
    fail("'{}': is no network that `espalier export` wrote: its metadata has no kind '{}'", file, kKind);
  const Json json = Json::parse(text->second, nullptr, /*allow_exceptions=*/false);
  return network_from_json(json, fmt::format("'{}': metadata", file));
}

}  // namespace espalier::grow
