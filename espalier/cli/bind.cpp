#include "espalier/cli/bind.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <utility>

#include "espalier/cli/help.h"
#include "espalier/core/error.h"
#include "espalier/core/text/nearest.h"
#include "espalier/core/text/utf8.h"

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
  if (std::holds_alternative<std::string*>(option.value) || std::holds_alternative<TextMember>(option.value))
    return "TEXT";
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

// Another spelling of the flag, and nothing else.
bool is_plain(const OptionAlias& alias) {
  return alias.value.empty() && alias.values.empty();
}

// What an alias's value is in the option's own words.
std::string_view meaning_of(const OptionAlias& alias, const std::string& text) {
  if (!alias.value.empty()) return alias.value;
  std::vector<std::string_view> words;
  for (const auto& [word, meaning] : alias.values) {
    if (word == text) return meaning;
    words.push_back(word);
  }
  fail_usage("--{}: want one of {}, got {}{}", alias.name, fmt::join(words, ", "), on_one_line(text),
             suggestion(text, words));
}

// What other tools call a flag of ours. The first of ours that a command has is meant.
struct Spelling {
  std::string_view word;
  std::vector<std::string_view> ours;
};
const std::vector<Spelling>& spellings() {
  static const std::vector<Spelling> all{{"lr", {"learning-rate"}},
                                         {"bs", {"batch"}},
                                         {"batch-size", {"batch"}},
                                         {"gpu", {"device", "devices"}},
                                         {"gpus", {"devices", "device"}},
                                         {"cuda", {"device", "devices"}},
                                         {"optimizer", {"learning-rate"}},
                                         {"optimiser", {"optimizer", "learning-rate"}},
                                         {"wd", {"weight-decay"}},
                                         {"dataset", {"data"}},
                                         {"output", {"run-dir", "out"}},
                                         {"output-dir", {"run-dir"}},
                                         {"out-dir", {"run-dir"}},
                                         {"logdir", {"run-dir"}},
                                         {"model", {"host"}},
                                         {"arch", {"host", "model"}},
                                         {"num-envs", {"lanes"}},
                                         {"networks", {"lanes"}},
                                         {"epochs", {"episode-length"}},
                                         {"grad-clip", {"clip"}},
                                         {"clip-norm", {"clip"}},
                                         {"max-grad-norm", {"clip"}},
                                         {"fp16", {"precision"}},
                                         {"bf16", {"precision"}},
                                         {"fp32", {"precision"}},
                                         {"dtype", {"precision"}},
                                         {"checkpoint", {"resume"}},
                                         {"from-checkpoint", {"resume"}},
                                         {"policy", {"controller"}},
                                         {"agent", {"controller"}}};
  return all;
}

// "; did you mean --batch?", by what other tools call it, or by letters.
std::string flag_suggestion(const std::string& word, const std::vector<std::string_view>& flags) {
  for (const Spelling& spelling : spellings()) {
    if (spelling.word != word) continue;
    for (const std::string_view ours : spelling.ours)
      if (std::ranges::count(flags, ours) > 0)
        return word.starts_with("optimi")
                   ? fmt::format("; hosts are trained by SGD: see --{}, --momentum", ours)
                   : fmt::format("; did you mean --{}?", ours);
  }
  return suggestion(word, flags, "--");
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

Binding::BoundAlias Binding::bind_alias(CLI::App& app, const OptionRef& option, const OptionAlias& alias) {
  CLI::Option* flag = nullptr;
  const std::string name = fmt::format("--{}", alias.name);
  if (!alias.value.empty()) {
    const std::string about = fmt::format("the same as --{} {}", option.info.name, alias.value);
    flag = app.add_flag(name, about);
  } else {
    std::vector<std::string> words, meanings;
    for (const auto& [word, meaning] : alias.values) {
      words.emplace_back(word);
      meanings.push_back(fmt::format("--{} {}", option.info.name, meaning));
    }
    flag = app.add_option(
        name, [](const CLI::results_t&) { return true; },
        fmt::format("the same as {}", fmt::join(meanings, " or ")));
    flag->type_name(fmt::format("{}", fmt::join(words, "|")));
  }
  flag->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)->group(kAliases);
  return {alias, flag};
}

Binding::Binding(CLI::App& app, const OptionList& options, const std::vector<Positional>& positionals,
                 const std::string& group) {
  for (const OptionRef& option : options) {
    std::string names = fmt::format("--{}", option.info.name);
    std::string about = description(option);
    for (const OptionAlias& alias : option.info.aliases) {
      if (!is_plain(alias)) continue;
      names += fmt::format(",--{}", alias.name);
      about += fmt::format("; also --{}", alias.name);
    }
    for (const Positional& positional : positionals) {
      if (positional.option == option.info.name) names = fmt::format("{},{}", positional.label, names);
    }
    CLI::Option* flag = nullptr;
    if (is_flag(option)) {
      // As const: otherwise CLI11 takes the text for the variable that the flag is to be written into.
      flag = app.add_flag(fmt::format("{},!--no-{}", names, option.info.name), std::as_const(about))
                 ->default_str(value_text(option));
    } else {
      // The text is read back in apply(); accepting it here is all there is to do.
      flag = app.add_option(names, [](const CLI::results_t&) { return true; }, about);
      flag->type_name(placeholder(option));
    }
    flag->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
        ->group(option.info.group.empty() ? group : std::string(option.info.group));
    Bound bound{option, flag, {}};
    for (const OptionAlias& alias : option.info.aliases)
      if (!is_plain(alias)) bound.aliases.push_back(bind_alias(app, option, alias));
    flags_.push_back(std::move(bound));
  }
}

void Binding::apply() const {
  for (const auto& [option, flag, aliases] : flags_) {
    if (flag->count() > 0) set_from_text(option, flag->results().back());
    for (const auto& [alias, other] : aliases) {
      if (other->count() == 0) continue;
      if (flag->count() > 0)
        fail_usage("--{} and --{} say the same in two ways: leave one of them out", alias.name,
                   option.info.name);
      set_from_text(option, meaning_of(alias, other->results().back()));
    }
  }
}

void refuse_unknown(const CLI::App& app) {
  // "data info: ", and nothing for the program itself, which program.cpp names anyway.
  const std::string place = app.get_parent() == nullptr ? "" : name_of(app) + ": ";
  const std::vector<std::string> unknown = app.remaining();
  const std::vector<std::string> subcommands = subcommand_names(app);
  // A flag first: what follows an unknown one is most likely its value.
  for (const std::string& word : unknown) {
    const size_t begin = word.find_first_not_of('-');
    if (begin == 0 || begin == word.npos) continue;
    const std::string flag = word.substr(0, word.find('='));
    fail_usage("{}unknown flag {}{}", place, flag, flag_suggestion(flag.substr(begin), flag_names(app)));
  }
  refuse_flags_as_values(app, place);
  for (const std::string& word : unknown) {
    if (subcommands.empty()) fail_usage("{}unexpected argument '{}'", place, word);
    fail_usage("{}unknown command '{}'{}", place, word,
               suggestion(word, {subcommands.begin(), subcommands.end()}));
  }
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (!chosen.empty()) {
    // A job that has commands of its own: its flags would be lost.
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 0)
        fail_usage("{}{} stands before the command '{}': give it after it", place, option->get_name(),
                   chosen.front()->get_name());
    return refuse_unknown(*chosen.front());
  }
  // Groups do nothing by themselves.
  if (app.get_require_subcommand_max() > 0 && !subcommands.empty()) {
    fail_usage("{}a command is missing: {}; see espalier{}{} --help", place, fmt::join(subcommands, ", "),
               place.empty() ? "" : " ", name_of(app));
  }
}

}  // namespace espalier::cli
