#include "espalier/cli/manual/tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "espalier/cli/help.h"

namespace espalier::cli {
namespace {

constexpr std::array<std::string_view, 6> kPaths{"FILE", "DIR", "PATH", "OUT", "RUN", "RUN_DIR"};

std::vector<std::string> split_choices(const std::string& value) {
  std::vector<std::string> choices;
  if (value.find('|') == value.npos) return choices;
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find('|', begin), value.size());
    choices.push_back(value.substr(begin, end - begin));
    begin = end + 1;
  }
  return choices;
}

FlagText flag_text(const CLI::Option& option) {
  FlagText flag{.help = option.get_description(), .group = option.get_group()};
  for (const std::string& name : option.get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flag.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) flag.value = option.get_type_name();
  flag.choices = split_choices(flag.value);
  if (option.get_positional()) flag.place = option.get_name(true, false);
  return flag;
}

CommandText command_text(const CLI::App& app, const std::string& above) {
  CommandText command{.name = app.get_name(),
                      .path = above.empty() ? app.get_name() : above + " " + app.get_name(),
                      .summary = app.get_description(),
                      .examples = app.get_footer(),
                      .groups = flag_groups(app)};
  for (const CLI::Option* option : app.get_options()) command.flags.push_back(flag_text(*option));
  const auto everything = [](const CLI::App*) { return true; };
  for (const CLI::App* child : app.get_subcommands(everything))
    command.commands.push_back(command_text(*child, command.path));
  command.is_job = command.commands.empty() || app.get_require_subcommand_max() == 0;
  return command;
}

}  // namespace

bool FlagText::takes_file() const {
  return std::ranges::count(kPaths, value) > 0;
}

CommandText command_tree(const CLI::App& app) {
  return command_text(app, "");
}

std::vector<const CommandText*> all_commands(const CommandText& root) {
  std::vector<const CommandText*> all{&root};
  for (const CommandText& child : root.commands)
    for (const CommandText* command : all_commands(child)) all.push_back(command);
  return all;
}

}  // namespace espalier::cli
