#include "espalier/cli/flags/policy.h"

#include <fmt/format.h>

#include <string>

namespace espalier::cli {

std::string_view reward_help() {
  static const std::string help = [] {
    std::string text;
    for (const std::string_view name : policy::rewards().names()) {
      const std::string& summary = policy::rewards().at(name).summary;
      text += fmt::format("{}{}{}{}", text.empty() ? "" : "; ", name, summary.empty() ? "" : ": ", summary);
    }
    return text;
  }();
  return help;
}

}  // namespace espalier::cli
