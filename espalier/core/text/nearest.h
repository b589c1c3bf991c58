// The valid name a mistyped one most likely meant, for errors about flags, keys, choices and subcommands.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace espalier {

// Insertions, deletions, substitutions and swaps of neighbours that turn one into the other.
int edit_distance(std::string_view a, std::string_view b);

// The candidate nearest to `name`, the first of several; empty where there are no candidates. A candidate
// that begins with `name`, or ends with it after a dash, is as near as one edit: people type "batch" for
// "batch-per-env".
std::string_view nearest_name(std::string_view name, const std::vector<std::string_view>& candidates);

// The end of an error message: "; did you mean --batch?"; empty where nothing is near. `prefix` is put before
// the name.
std::string suggestion(std::string_view name, const std::vector<std::string_view>& candidates,
                       std::string_view prefix = {});

}  // namespace espalier
