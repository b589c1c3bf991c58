// What a run left, to be compared with another's: its metrics but for the times, and its last checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "espalier/run/files/checkpoint_folder.h"

namespace espalier::support {

struct FinishedRun {
  std::vector<nlohmann::ordered_json> lines;  // without fields of time
  nlohmann::ordered_json state;               // as in the last checkpoint
  std::map<std::string, std::vector<std::byte>> tensors;

  bool operator==(const FinishedRun&) const = default;
};

// Times are in fields that say so, at any depth.
inline nlohmann::ordered_json without_times(const nlohmann::ordered_json& json) {
  if (!json.is_object()) return json;
  nlohmann::ordered_json kept = nlohmann::ordered_json::object();
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const bool is_time =
        key.find("seconds") != key.npos || key.find("SPS") != key.npos || key.starts_with("time/");
    if (!is_time) kept[key] = without_times(item.value());
  }
  return kept;
}

inline FinishedRun finished_run(const std::filesystem::path& path) {
  FinishedRun run;
  std::ifstream in(path / "metrics.jsonl");
  for (std::string line; std::getline(in, line);)
    run.lines.push_back(without_times(nlohmann::ordered_json::parse(line)));
  const run::CheckpointFolder folder(path / "checkpoints");
  const run::Checkpoint last = run::read_checkpoint(folder.path() / folder.names().back());
  run.state = last.manifest["state"];
  for (const TensorEntry& entry : last.header.tensors) {
    const auto bytes = last.bytes_of(entry);
    run.tensors[entry.name] = {bytes.begin(), bytes.end()};
  }
  return run;
}

// Says what differs, not only that something does.
inline void expect_same_run(const FinishedRun& a, const FinishedRun& b, const std::string& what) {
  ASSERT_EQ(a.lines.size(), b.lines.size()) << what;
  for (size_t i = 0; i < a.lines.size(); ++i) ASSERT_EQ(a.lines[i], b.lines[i]) << what << ", line " << i + 1;
  ASSERT_EQ(a.state, b.state) << what;
  ASSERT_EQ(a.tensors.size(), b.tensors.size()) << what;
  for (const auto& [name, bytes] : a.tensors)
    ASSERT_TRUE(b.tensors.contains(name) && b.tensors.at(name) == bytes) << what << ", tensor " << name;
}

}  // namespace espalier::support
