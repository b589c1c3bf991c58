// The text of --help: options in two columns, wrapped to the terminal.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace CLI {
class FormatterBase;
}

namespace espalier::cli {

// The groups of flags, in the order in which they are shown; flags of another group are not.
inline constexpr const char* kOwnFlags = "Flags";
inline constexpr const char* kSharedFlags = "Flags of every command";

std::shared_ptr<CLI::FormatterBase> make_help_formatter(int columns);

// Two columns: `left` after two spaces, `right` wrapped between words beside it, or below where left is long.
std::string two_columns(std::string_view left, std::string_view right, int columns);

}  // namespace espalier::cli
