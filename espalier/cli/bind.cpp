#include "espalier/cli/bind.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "espalier/core/error.h"
#include "espalier/core/nearest.h"

namespace espalier::cli {
namespace {

bool is_flag(const OptionRef& option) {
  return std::holds_alternative<bool*>(option.value);
}

// What --help calls the value: "error|skip", "HxW", "INT".
std::string placeholder(const OptionRef& option) {
  const OptionInfo& info = option.info;
  if (!info.placeholder.empty()) return std::string(info.placeholder);
  if (!info.choices.empty()) return fmt::format("{}", fmt::join(info.choices, "|"));
  if (info.format == OptionFormat::kByteSize) return "SIZE";
  if (std::holds_alternative<std::string*>(option.value)) return "TEXT";
  return std::holds_alternative<double*>(option.value) ? "NUMBER" : "INT";
}

// "samples a step (default 512; from 1 to 1024)".
std::string description(const OptionRef& option) {
  const std::string value = value_text(option);
  std::string notes;
  if (is_flag(option)) {
    notes = value == "true" ? "on by default" : "";
  } else if (!value.empty()) {
    notes = fmt::format("default {}", value);
  }
  const std::string range = describe_range(option);
  if (!range.empty()) notes += (notes.empty() ? "" : "; ") + range;
  return notes.empty() ? std::string(option.info.help) : fmt::format("{} ({})", option.info.help, notes);
}

// "data info"; empty for the program itself.
std::string name_of(const CLI::App& app) {
  const CLI::App* const parent = app.get_parent();
  if (parent == nullptr) return {};
  return parent->get_parent() == nullptr ? app.get_name() : name_of(*parent) + " " + app.get_name();
}

// In "--resize --force" the parser takes the second flag for the value of the first.
void refuse_flags_as_values(const CLI::App& app, std::string_view place) {
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& value : option->results()) {
      if (value.starts_with("--") && app.get_option_no_throw(value) != nullptr) {
        fail_usage("{}{}: want {}, got the flag {}", place, option->get_name(), option->get_type_name(),
                   value);
      }
    }
  }
}

// Names are kept by the app, so views of them are safe while it lives.
std::vector<std::string_view> flag_names(const CLI::App& app) {
  std::vector<std::string_view> names;
  for (const CLI::Option* option : app.get_options()) {
    names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  return names;
}

std::vector<std::string> subcommand_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* child : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(child->get_name());
  }
  return names;
}

}  // namespace

Binding::Binding(CLI::App& app, const OptionList& options, const std::vector<Positional>& positionals,
                 const std::string& group) {
  for (const OptionRef& option : options) {
    std::string names = fmt::format("--{}", option.info.name);
    for (const Positional& positional : positionals) {
      if (positional.option == option.info.name) names = fmt::format("{},{}", positional.label, names);
    }
    const std::string about = description(option);
    CLI::Option* flag = nullptr;
    if (is_flag(option)) {
      flag = app.add_flag(fmt::format("{},!--no-{}", names, option.info.name), about)
                 ->default_str(value_text(option));
    } else {
      // The text is read back in apply(); accepting it here is all there is to do.
      flag = app.add_option(names, [](const CLI::results_t&) { return true; }, about);
      flag->type_name(placeholder(option));
    }
    flag->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->group(group);
    flags_.emplace_back(option, flag);
  }
}

void Binding::apply() const {
  for (const auto& [option, flag] : flags_) {
    if (flag->count() > 0) set_from_text(option, flag->results().back());
  }
}

void refuse_unknown(const CLI::App& app) {
  // "data info: ", and nothing for the program itself, which main.cpp names anyway.
  const std::string place = app.get_parent() == nullptr ? "" : name_of(app) + ": ";
  const std::vector<std::string> unknown = app.remaining();
  const std::vector<std::string> subcommands = subcommand_names(app);
  // A flag first: what follows an unknown one is most likely its value.
  for (const std::string& word : unknown) {
    const size_t begin = word.find_first_not_of('-');
    if (begin == 0 || begin == word.npos) continue;
    const std::string flag = word.substr(0, word.find('='));
    fail_usage("{}unknown flag {}{}", place, flag, suggestion(flag.substr(begin), flag_names(app), "--"));
  }
  refuse_flags_as_values(app, place);
  for (const std::string& word : unknown) {
    if (subcommands.empty()) fail_usage("{}unexpected argument '{}'", place, word);
    fail_usage("{}unknown command '{}'{}", place, word,
               suggestion(word, {subcommands.begin(), subcommands.end()}));
  }
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (!chosen.empty()) return refuse_unknown(*chosen.front());
  if (!subcommands.empty()) {
    fail_usage("{}a command is missing: {}; see espalier{}{} --help", place, fmt::join(subcommands, ", "),
               place.empty() ? "" : " ", name_of(app));
  }
}

}  // namespace espalier::cli
