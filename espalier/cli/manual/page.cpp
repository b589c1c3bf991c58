#include "espalier/cli/manual/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <vector>

namespace espalier::cli {
namespace {

constexpr std::string_view kExitStatus =
    "0 where all went well, 1 where the run failed, 2 for wrong usage, 130 after SIGINT, 143 after SIGTERM. "
    "An error is one line on standard error.";

// One line of text: nothing in it is a request, and a hyphen is the one that users type.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c == '\n' ? ' ' : c;
  }
  return out.starts_with('.') || out.starts_with('\'') ? "\\&" + out : out;
}

// Lines as they are, in a fixed width.
std::string as_typed(std::string_view lines) {
  std::string out = ".nf\n";
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    out += escaped(lines.substr(0, end)) + "\n";
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
  return out + ".fi\n";
}

std::string flag_entry(const FlagText& flag) {
  std::string names;
  for (const std::string& name : flag.names)
    names += fmt::format("{}\\fB{}\\fR", names.empty() ? "" : ", ", escaped(name));
  if (!flag.value.empty()) names += fmt::format(" \\fI{}\\fR", escaped(flag.value));
  if (!flag.place.empty()) names = fmt::format("\\fI{}\\fR, {}", escaped(flag.place), names);
  return fmt::format(".TP\n{}\n{}\n", names, escaped(flag.help));
}

std::string synopsis(const CommandText& command) {
  std::string text;
  if (command.is_job) {
    text += fmt::format("\\fB{}\\fR", escaped(command.path));
    for (const FlagText& flag : command.flags)
      if (!flag.place.empty()) text += fmt::format(" [\\fI{}\\fR]", escaped(flag.place));
    text += " [\\fIFLAGS\\fR]\n";
  }
  if (!command.commands.empty())
    text +=
        fmt::format("{}\\fB{}\\fR \\fICOMMAND\\fR ...\n", text.empty() ? "" : ".br\n", escaped(command.path));
  return text;
}

std::string see_also(const CommandText& command, const CommandText* above) {
  std::vector<std::string> names;
  if (above != nullptr) names.push_back(page_name(*above));
  for (const CommandText& child : command.commands) names.push_back(page_name(child));
  std::ranges::sort(names);
  std::string text;
  for (const std::string& name : names)
    text += fmt::format("{}\\fB{}\\fR(1)", text.empty() ? "" : ",\n", escaped(name));
  return text.empty() ? text : ".SH SEE ALSO\n" + text + "\n";
}

}  // namespace

std::string page_name(const CommandText& command) {
  std::string name = command.path;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string manual_page(const CommandText& command, const CommandText* above, const std::string& version) {
  std::string title = page_name(command);
  std::ranges::transform(title, title.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  std::string page =
      fmt::format(".TH {} 1 \"\" \"espalier {}\" \"User Commands\"\n", escaped(title), escaped(version));
  page += fmt::format(".SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}", escaped(page_name(command)),
                      escaped(command.summary), synopsis(command));
  if (!command.commands.empty()) {
    page += ".SH COMMANDS\n";
    for (const CommandText& child : command.commands)
      page += fmt::format(".TP\n\\fB{}\\fR\n{}\n", escaped(child.name), escaped(child.summary));
  }
  page += ".SH OPTIONS\n";
  for (const std::string& group : command.groups) {
    std::string entries;
    for (const FlagText& flag : command.flags)
      if (flag.group == group) entries += flag_entry(flag);
    if (!entries.empty()) page += fmt::format(".SS {}\n{}", escaped(group), entries);
  }
  constexpr std::string_view kHeading = "Examples:\n";
  std::string_view examples = command.examples;
  if (examples.starts_with(kHeading)) examples.remove_prefix(kHeading.size());
  if (!examples.empty()) page += ".SH EXAMPLES\n" + as_typed(examples);
  page += fmt::format(".SH EXIT STATUS\n{}\n", escaped(kExitStatus));
  return page + see_also(command, above);
}

}  // namespace espalier::cli
