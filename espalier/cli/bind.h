// Binds a list of options to a command of CLI11: one flag per option, with its default, range and choices
// in --help. Nothing is assigned while the command line is parsed: apply() does it afterwards, so that a
// configuration file can be read first and flags override it, and so that every value, wherever it comes
// from, is checked by core/options.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace espalier::cli {

// An option that may also be given by its place: {"data", "SRC"} makes `SRC` and `--data SRC` the same.
struct Positional {
  std::string_view option;
  std::string_view label;
};

class Binding {
 public:
  // What `options` points to must outlive the binding. Places are filled in the order of the options. group:
  // the group for options that name none.
  Binding(CLI::App& app, const OptionList& options, const std::vector<Positional>& positionals,
          const std::string& group);

  // Assigns what was given on the command line; the last of several wins. An alias and its option together
  // are refused.
  void apply() const;

 private:
  // An alias that is a flag of its own, since it stands for a value or has other words for values.
  struct BoundAlias {
    OptionAlias alias;
    const CLI::Option* flag;
  };
  struct Bound {
    OptionRef option;
    const CLI::Option* flag;
    std::vector<BoundAlias> aliases;
  };
  BoundAlias bind_alias(CLI::App& app, const OptionRef& option, const OptionAlias& alias);

  std::vector<Bound> flags_;
};

// Throws UsageError for what the parser did not know in `app` and the subcommands that were chosen, with the
// nearest valid flag or subcommand. The apps must allow extras.
void refuse_unknown(const CLI::App& app);

}  // namespace espalier::cli
