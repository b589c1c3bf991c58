// A run as a page (docs/runs.md): one file that needs nothing else, drawn by browser/*.js from JSON inside
// it.
//
// Kept true: nothing in a run's files can become markup or script, whatever they hold; the page loads
// nothing, and its own policy (Content-Security-Policy) forbids it to.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "espalier/watch/lines/record.h"

namespace espalier::watch {

std::string report_page(const RunRecord& run);

// Curves and results of several runs, in the order given.
std::string comparison_page(std::span<const RunRecord> runs);

// The page that `espalier watch` serves: scripts and data come from the server.
std::string live_page(const RunRecord& run);

// All scripts of the page, and its style: what a page holds inside, or the server sends.
std::string page_script();
std::string_view page_style();

// JSON that may stand inside <script>: no '<' in it.
std::string script_json(const nlohmann::ordered_json& data);

// Writes report.html into the run's directory, as a whole or not at all; returns its path. Throws
// espalier::Error.
std::filesystem::path write_report(const std::filesystem::path& run_dir);

}  // namespace espalier::watch
