// What is known of earlier runs before one is begun or resumed: which job made a directory, whether it came
// to its end, and which stopped run has the configuration that is asked for.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace espalier::run {

// The job that made the run there ("population"), as its environment.json says; empty where it says nothing.
std::string job_of(const std::filesystem::path& run);

// "that is a population run": the part of a sentence about a run that another job made.
std::string kind_text(const std::string& job);

// What a user types to go on with a run: "espalier train population --resume runs/mine".
std::string resume_command(const std::string& job, const std::filesystem::path& run);

// Whether the last line of its metrics is a result.
bool ends_with_result(const std::filesystem::path& run);

// Options that a run may change when it goes on, by the names of their flags: they are no part of what it is.
std::span<const std::string_view> free_keys();

// The part of a configuration that a run is made of: without where it writes and how it is watched.
nlohmann::ordered_json without_free_keys(nlohmann::ordered_json config);

// The newest run in `folder` of this job and configuration that stopped before its end and has a checkpoint.
std::optional<std::filesystem::path> stopped_run_like(const std::filesystem::path& folder,
                                                      const std::string& job,
                                                      const nlohmann::ordered_json& config);

}  // namespace espalier::run
