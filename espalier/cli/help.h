// The text of --help: options in two columns, wrapped to the terminal.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
class FormatterBase;
}  // namespace CLI

namespace espalier::cli {

// Groups of flags. Those that a job names are shown in the order of their first flags, between the first and
// the last two of these.
inline constexpr const char* kFirstFlags = "Used most";
inline constexpr const char* kOwnFlags = "Flags";
inline constexpr const char* kAliases = "Other names";
inline constexpr const char* kSharedFlags = "Flags of every command";

std::shared_ptr<CLI::FormatterBase> make_help_formatter(int columns);

// The groups of a command's flags, in the order in which they are shown.
std::vector<std::string> flag_groups(const CLI::App& app);

// Two columns: `left` after two spaces, `right` wrapped between words beside it, or below where left is long.
std::string two_columns(std::string_view left, std::string_view right, int columns);

}  // namespace espalier::cli
