#include "espalier/cli/help.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <vector>

namespace espalier::cli {
namespace {

constexpr size_t kLeftColumns = 30;

// "SRC, --data SRC", "--batch INT", "--[no-]augment" where it is on by default, "--force" where it is not.
std::string flag_label(const CLI::Option& option) {
  const std::string& name = option.get_lnames().front();
  if (option.get_positional()) {
    const std::string place = option.get_name(true, false);
    return place + ", --" + name + " " + place;
  }
  if (option.get_items_expected_max() > 0) return "--" + name + " " + option.get_type_name();
  if (!option.get_snames().empty()) return "-" + option.get_snames().front() + ", --" + name;
  return (option.get_default_str() == "true" ? "--[no-]" : "--") + name;
}

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(int columns) : columns_(columns) {}

  std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode) const override {
    std::string text = app->get_description() + "\n\nUsage: " + name;
    const std::vector<const CLI::App*> commands = app->get_subcommands([](const CLI::App*) { return true; });
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) text += " " + option->get_name(true, false);
    }
    text += commands.empty()                        ? " [FLAGS]\n"
            : app->get_require_subcommand_max() > 0 ? " COMMAND ...\n"
                                                    : " [FLAGS], or " + name + " COMMAND ...\n";
    if (!commands.empty()) text += "\nCommands:\n";
    for (const CLI::App* command : commands) {
      text += two_columns(command->get_name(), command->get_description(), columns_);
    }
    for (const std::string& group : flag_groups(*app)) text += flags_of(*app, group);
    if (!app->get_footer().empty()) text += "\n" + app->get_footer() + "\n";
    return text;
  }

 private:
  std::string flags_of(const CLI::App& app, const std::string& group) const {
    std::string text;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group() != group) continue;
      text += two_columns(flag_label(*option), option->get_description(), columns_);
    }
    return text.empty() ? text : "\n" + group + ":\n" + text;
  }

  int columns_;
};

}  // namespace

std::vector<std::string> flag_groups(const CLI::App& app) {
  std::vector<std::string> groups{kFirstFlags};
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (group != kAliases && group != kSharedFlags && std::ranges::find(groups, group) == groups.end())
      groups.push_back(group);
  }
  groups.insert(groups.end(), {kAliases, kSharedFlags});
  return groups;
}

std::string two_columns(std::string_view left, std::string_view right, int columns) {
  const size_t width = std::max<size_t>(static_cast<size_t>(std::max(columns, 0)), kLeftColumns + 30);
  std::string out;
  std::string line = "  " + std::string(left);
  if (line.size() + 2 > kLeftColumns) {
    out = line + "\n";
    line.clear();
  }
  line.resize(kLeftColumns, ' ');
  bool is_first = true;
  while (!right.empty()) {
    const size_t end = std::min(right.find(' '), right.size());
    const std::string_view word = right.substr(0, end);
    right.remove_prefix(std::min(end + 1, right.size()));
    if (!is_first && line.size() + 1 + word.size() > width) {
      out += line + "\n";
      line.assign(kLeftColumns, ' ');
      is_first = true;
    }
    if (!is_first) line += ' ';
    line += word;
    is_first = false;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line.empty() ? out : out + line + "\n";
}

std::shared_ptr<CLI::FormatterBase> make_help_formatter(int columns) {
  return std::make_shared<HelpFormatter>(columns);
}

}  // namespace espalier::cli
