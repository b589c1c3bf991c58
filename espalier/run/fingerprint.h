// What a run is made of, and whether a start asks for the same: job, configuration, data, number of threads.
//
// Kept true: every key that differs is named with both values, and is allowed where --allow-change names it
// or an earlier start was allowed to change it to the very same value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace espalier::run {

// What is not the same in these two objects: {key: {"was": ..., "now": ...}}.
nlohmann::ordered_json differences(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

// The newest value of every key that a start of the run was allowed to change. sessions: environment.json's.
nlohmann::ordered_json noted_changes(const nlohmann::ordered_json& sessions);

// A value as messages show it.
std::string shown(const nlohmann::ordered_json& value);

struct FingerprintCheck {
  std::string run;  // its directory, for the message
  const nlohmann::ordered_json&
      before;  // {"job":, "config": {...}, "dataset":, "threads":}; parts may be missing
  const nlohmann::ordered_json& now;        // the same of this start
  const nlohmann::ordered_json& config;     // all of the job's keys, those included that no run is made of
  const nlohmann::ordered_json& noted;      // noted_changes()
  const std::vector<std::string>& allowed;  // --allow-change
};

// Fails with every difference that nobody allowed, and with a key of --allow-change that neither has.
void check_fingerprint(const FingerprintCheck& check);

}  // namespace espalier::run
