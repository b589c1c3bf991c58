// Where a run lives: the directory that flags name, or a fresh one in runs/, and `runs/latest`.
#pragma once

#include <filesystem>
#include <string>

#include "espalier/run/config.h"

namespace espalier::run {

inline constexpr const char* kMetrics = "metrics.jsonl";
inline constexpr const char* kRunsFolder = "runs";

// The time now, as strftime() formats it, in UTC.
std::string utc_now(const char* format);

// What --run-dir and --resume say; a fresh name in runs/ where they say nothing. Refuses a --resume that is
// no run, and one that is not in --run-dir.
std::filesystem::path run_path(const RunConfig& options, const std::string& job);

// Fails, naming it, where the folder cannot be made.
void make_folder(const std::filesystem::path& path);

// The outermost folder on the way to a path that is not there yet; empty where the path itself is there.
std::filesystem::path first_missing(const std::filesystem::path& path);

// `runs/latest` points to this run, wherever it lies. Made under another name and renamed, so that it always
// exists.
void link_latest(const std::filesystem::path& run);

}  // namespace espalier::run
