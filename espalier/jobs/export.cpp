#include "espalier/jobs/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/grow/export/python.h"
#include "espalier/run/location.h"

namespace espalier::jobs {
namespace {

namespace fs = std::filesystem;

// Both files, from NAME or NAME.safetensors.
struct Pair {
  fs::path tensors;
  fs::path python;
};

// Python's keywords, and what the module itself imports, which a file of that name beside it would hide.
constexpr auto kReserved = std::to_array<std::string_view>(
    {"False",    "None",   "True",  "and",  "as",     "assert",   "async",       "await", "break", "class",
     "continue", "def",    "del",   "elif", "else",   "except",   "finally",     "for",   "from",  "global",
     "if",       "import", "in",    "is",   "lambda", "nonlocal", "not",         "or",    "pass",  "raise",
     "return",   "try",    "while", "with", "yield",  "pathlib",  "safetensors", "torch"});

bool is_importable(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && is_letter(name.front()) && std::ranges::find(kReserved, name) == kReserved.end() &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

Pair pair_of(const fs::path& path) {
  fs::path stem = path;
  if (stem.extension() == ".safetensors" || stem.extension() == ".py") stem.replace_extension();
  if (!is_importable(stem.filename().string()))
    fail_usage(
        "export: '{}': want a name that Python can import: letters, digits and _, a letter first, no "
        "keyword, and not torch, safetensors or pathlib",
        stem.filename().string());
  return {fs::path(stem) += ".safetensors", fs::path(stem) += ".py"};
}

void check_new(const fs::path& path, bool overwrite) {
  if (!overwrite && fs::exists(fs::symlink_status(path)))
    fail_usage("export: '{}' exists; give --force to overwrite it, or another name", path.string());
}

void check_folder_of(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (!fs::is_directory(folder))
    fail_usage("export: '{}': its directory '{}' does not exist", path.string(), folder.string());
}

}  // namespace

ExportedNetwork export_network(const grow::GrownNetwork& network, const fs::path& path,
                               const grow::BlueprintRegistry& blueprints) {
  const Pair pair = pair_of(path);
  const grow::GrownNetwork felt = grow::only_felt(network);
  const std::string text = grow::python_text(felt.description, blueprints, pair.tensors.stem().string());
  grow::write_network(pair.tensors.string(), felt);
  AtomicFile file(pair.python.string());
  file.write(text);
  file.commit();
  return {pair.tensors, pair.python, felt.description};
}

std::vector<ExportedNetwork> export_networks(const ExportConfig& config) {
  const fs::path out = config.out;
  const bool is_folder = config.lane.which == LaneChoice::Which::kAll;
  // Before the work, not after it.
  if (is_folder) {
    if (fs::exists(fs::symlink_status(out)) && !fs::is_directory(out))
      fail_usage("export: '{}' is no folder, and --lane all writes one", out.string());
    check_folder_of(out.has_filename() ? out : out.parent_path());
    if (fs::exists(out) && !fs::is_empty(out)) check_new(out, config.overwrite);
  } else {
    const Pair pair = pair_of(out);
    check_folder_of(pair.tensors);
    check_new(pair.tensors, config.overwrite);
    check_new(pair.python, config.overwrite);
  }
  const std::vector<grow::GrownNetwork> networks =
      chosen_networks(saved_networks(config.from, config.checkpoint), config.lane);
  const grow::BlueprintRegistry blueprints;
  std::vector<ExportedNetwork> exported;
  if (!is_folder) return {export_network(networks.front(), out, blueprints)};
  const int width = static_cast<int>(fmt::formatted_size("{}", networks.back().description.origin.lane));
  const auto path_of = [&](const grow::GrownNetwork& network) {
    return out / (network.name.empty() ? fmt::format("lane{:0{}}", network.description.origin.lane, width)
                                       : network.name);
  };
  for (const grow::GrownNetwork& network : networks)  // refused before anything is written
    grow::python_text(network.description, blueprints, pair_of(path_of(network)).python.stem().string());
  run::make_folder(out);
  for (const grow::GrownNetwork& network : networks)
    exported.push_back(export_network(network, path_of(network), blueprints));
  return exported;
}

}  // namespace espalier::jobs
