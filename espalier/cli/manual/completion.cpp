#include "espalier/cli/manual/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace espalier::cli {
namespace {

// 'it'\''s': a word of sh, bash or zsh.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// fish escapes inside single quotes.
std::string fish_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

// Brackets and colons end a description in a specification of zsh's _arguments.
std::string zsh_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// What is said of a flag in one line beside it: its help without what bind.cpp adds, the default in a bracket
// and other names. Brackets before that belong to the sentence.
std::string brief(const std::string& help) {
  const std::string text = help.substr(0, help.find("; also --"));
  if (!text.ends_with(')')) return text;
  size_t begin = text.size();
  int depth = 0;
  do {
    begin -= 1;
    depth += text[begin] == ')' ? 1 : text[begin] == '(' ? -1 : 0;
  } while (depth > 0 && begin > 0);
  return depth == 0 && begin > 0 && text[begin - 1] == ' ' ? text.substr(0, begin - 1) : text;
}

std::vector<std::string> names_of(const std::vector<CommandText>& commands) {
  std::vector<std::string> names;
  for (const CommandText& command : commands) names.push_back(command.name);
  return names;
}

// `case` patterns of every command below the program: by them a script knows where in the tree it is.
std::vector<std::string> paths_below(const CommandText& root) {
  std::vector<std::string> paths;
  for (const CommandText* command : all_commands(root))
    if (command != &root) paths.push_back(shell_quoted(command->path));
  return paths;
}

std::string bash_flag_values(const CommandText& command) {
  std::string text;
  for (const FlagText& flag : command.flags) {
    if (flag.value.empty()) continue;
    const std::string reply =
        !flag.choices.empty()
            ? fmt::format("values={}", shell_quoted(fmt::format("{}", fmt::join(flag.choices, " "))))
        : flag.takes_file() ? "kind=file"
                            : "kind=any";
    text += fmt::format("        {}) {} ;;\n", fmt::join(flag.names, " | "), reply);
  }
  return text.empty() ? text : "      case \"$before\" in\n" + text + "      esac\n";
}

std::string bash_command(const CommandText& command) {
  std::vector<std::string> flags;
  bool takes_file = false;
  for (const FlagText& flag : command.flags) {
    flags.insert(flags.end(), flag.names.begin(), flag.names.end());
    takes_file = takes_file || !flag.place.empty();
  }
  std::string text = fmt::format("    {})\n      flags={}\n", shell_quoted(command.path),
                                 shell_quoted(fmt::format("{}", fmt::join(flags, " "))));
  if (!command.commands.empty())
    text += fmt::format("      commands={}\n",
                        shell_quoted(fmt::format("{}", fmt::join(names_of(command.commands), " "))));
  if (takes_file) text += "      place=file\n";
  return text + bash_flag_values(command) + "      ;;\n";
}

std::string zsh_flag(const FlagText& flag) {
  std::string text;
  std::string value;
  if (!flag.value.empty()) {
    const std::string action = !flag.choices.empty() ? fmt::format("({})", fmt::join(flag.choices, " "))
                               : flag.takes_file()   ? "_files"
                                                     : " ";
    // The list of choices is long, and shown anyway.
    value = fmt::format(":{}:{}", flag.choices.empty() ? zsh_escaped(flag.value) : "value", action);
  }
  for (const std::string& name : flag.names)
    text += fmt::format("      {} \\\n",
                        shell_quoted(fmt::format("{}[{}]{}", name, zsh_escaped(brief(flag.help)), value)));
  return text;
}

std::string zsh_command(const CommandText& command) {
  std::string text = fmt::format("    {})\n", shell_quoted(command.path));
  if (!command.commands.empty()) {
    text += "      commands=(\n";
    for (const CommandText& child : command.commands)
      text += fmt::format("        {}\n", shell_quoted(child.name + ":" + child.summary));
    text += "      )\n      [[ $words[CURRENT] != -* ]] && _describe command commands\n";
  }
  text += "      _arguments \\\n";
  bool takes_file = false;
  for (const FlagText& flag : command.flags) {
    text += zsh_flag(flag);
    takes_file = takes_file || !flag.place.empty();
  }
  return text + (takes_file ? "      '*:file:_files'\n" : "      && return\n") + "      ;;\n";
}

std::string fish_flag(const std::string& condition, const FlagText& flag) {
  std::string text = fmt::format("complete -c espalier -n {}", condition);
  for (const std::string& name : flag.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!flag.choices.empty())
    text += " -x -a " + fish_quoted(fmt::format("{}", fmt::join(flag.choices, " ")));
  else if (flag.takes_file())
    text += " -r -F";
  else if (!flag.value.empty())
    text += " -x";
  return text + " -d " + fish_quoted(brief(flag.help)) + "\n";
}

}  // namespace

std::string bash_completion(const CommandText& root) {
  std::string text = fmt::format(R"(# Completion of espalier for bash, made by 'espalier completion bash'.
_espalier() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}"
  local at=espalier flags='' commands='' values='' kind='' place='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$at ${{COMP_WORDS[i]}}" in
      {}) at="$at ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$at" in
)",
                                 fmt::join(paths_below(root), " | "));
  for (const CommandText* command : all_commands(root)) text += bash_command(*command);
  return text + R"(  esac
  if [[ -n $values ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$word")
  elif [[ $kind == any ]]; then
    :
  elif [[ $kind == file ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2>/dev/null
  elif [[ $word == -* || -z $commands$place ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$flags" -- "$word")
  else
    mapfile -t COMPREPLY < <(compgen -W "$commands" -- "$word")
    if [[ $place == file ]]; then
      mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$word")
      compopt -o filenames 2>/dev/null
    fi
  fi
}
complete -F _espalier espalier
)";
}

std::string zsh_completion(const CommandText& root) {
  std::string text = fmt::format(R"(#compdef espalier
# Completion of espalier for zsh, made by 'espalier completion zsh'.
_espalier() {{
  local at=espalier
  local -a commands
  local -i i depth=0
  for ((i = 2; i < CURRENT; i++)); do
    case "$at $words[i]" in
      {}) at="$at $words[i]"; depth=$((i - 1)) ;;
    esac
  done
  # What is before a command's own words is no argument of it.
  (( CURRENT -= depth ))
  shift $depth words
  case "$at" in
)",
                                 fmt::join(paths_below(root), " | "));
  for (const CommandText* command : all_commands(root)) text += zsh_command(*command);
  return text + R"(  esac
}
if [[ $funcstack[1] == _espalier ]]; then _espalier "$@"; else compdef _espalier espalier; fi
)";
}

std::string fish_completion(const CommandText& root) {
  std::string text = fmt::format(R"(# Completion of espalier for fish, made by 'espalier completion fish'.
function __espalier_at
    set -l at espalier
    for word in (commandline -opc)[2..-1]
        switch "$at $word"
            case {}
                set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
complete -c espalier -f
)",
                                 fmt::join(paths_below(root), " "));
  for (const CommandText* command : all_commands(root)) {
    const std::string condition = fish_quoted(fmt::format("__espalier_at \"{}\"", command->path));
    for (const CommandText& child : command->commands)
      text += fmt::format("complete -c espalier -n {} -a {} -d {}\n", condition, child.name,
                          fish_quoted(child.summary));
    bool takes_file = false;
    for (const FlagText& flag : command->flags) {
      text += fish_flag(condition, flag);
      takes_file = takes_file || !flag.place.empty();
    }
    if (takes_file) text += fmt::format("complete -c espalier -n {} -F\n", condition);
  }
  return text;
}

}  // namespace espalier::cli
