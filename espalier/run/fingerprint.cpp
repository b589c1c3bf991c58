#include "espalier/run/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/text/nearest.h"

namespace espalier::run {
namespace {

using Json = nlohmann::ordered_json;

// The keys of --allow-change; one that neither the run nor this job has would allow nothing.
std::set<std::string> allowed_keys(const FingerprintCheck& check) {
  if (check.allowed.empty()) return {};
  std::set<std::string> known{"job", "dataset", "threads"};
  for (const auto& item : check.config.items()) known.insert(item.key());
  for (const Json* one : {&check.before, &check.now})
    if (const auto config = one->find("config"); config != one->end())
      for (const auto& item : config->items()) known.insert(item.key());
  for (const std::string& key : check.allowed)
    if (!known.contains(key))
      fail_usage("--allow-change '{}': the run's configuration has no key '{}'{}",
                 fmt::join(check.allowed, ","), key, suggestion(key, {known.begin(), known.end()}));
  return {check.allowed.begin(), check.allowed.end()};
}

}  // namespace

std::string shown(const Json& value) {
  return value.is_null() ? "nothing" : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json differences(const Json& before, const Json& now) {
  Json changed = Json::object();
  for (const auto& item : now.items())
    if (const Json was = before.value(item.key(), Json()); was != item.value())
      changed[item.key()] = {{"was", was}, {"now", item.value()}};
  for (const auto& item : before.items())
    if (!now.contains(item.key())) changed[item.key()] = {{"was", item.value()}, {"now", nullptr}};
  return changed;
}

Json noted_changes(const Json& sessions) {
  Json noted = Json::object();
  for (const Json& session : sessions) {
    const Json changed = session.is_object() ? session.value("changed", Json()) : Json();
    if (!changed.is_object()) continue;
    for (const auto& item : changed.items())
      if (item.value().is_object()) noted[item.key()] = item.value().value("now", Json());
  }
  return noted;
}

void check_fingerprint(const FingerprintCheck& check) {
  const std::set<std::string> allowed = allowed_keys(check);
  std::string told;
  std::string keys;
  const auto compare = [&](const Json& before, const Json& now) {
    const Json changed = differences(before, now);
    for (const auto& item : changed.items()) {
      const std::string& key = item.key();
      const Json &was = item.value()["was"], &is = item.value()["now"];
      if (allowed.contains(key)) continue;
      // Changed by an earlier start, which may have ended before its first checkpoint.
      if (check.noted.contains(key) && check.noted[key] == is) continue;
      told += fmt::format("{}{} was {}, now {}", told.empty() ? "" : "; ", key, shown(was), shown(is));
      keys += (keys.empty() ? "" : ",") + key;
    }
  };
  for (const auto& item : check.now.items()) {
    const Json before = check.before.value(item.key(), Json());
    if (item.key() == "config")
      compare(before.is_object() ? before : Json::object(), item.value());
    else
      compare({{item.key(), before}}, {{item.key(), item.value()}});
  }
  if (!told.empty())
    fail_usage(
        "run directory '{}' holds another run: {}; give another --run-dir, or --restart fresh to throw it "
        "away, or --allow-change {} to go on all the same",
        check.run, told, keys);
}

}  // namespace espalier::run
