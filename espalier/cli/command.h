// How a command is made. A command file offers one function, add_x_command(app, context), that main.cpp
// calls; inside, add_group() makes `espalier data` and add_job() makes `espalier data info`:
//
//   CLI::App& data = add_group(app, "data", "look at data, or convert it");
//   add_job<InfoOptions>(data, context, {.name = "info", .summary = "...", .examples = "..."},
//                        [](const InfoOptions& options, Context& context) { ...; return 0; });
//
// Every job gets the flags of its options struct, and --config-json, --print-config and --color besides. It
// runs with the options complete and valid: defaults, then the file, then the flags.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/cli/bind.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/watch/terminal.h"

namespace espalier::cli {

// What jobs may use of the program around them.
class Context {
 public:
  watch::ColorChoice color = watch::ColorChoice::kAuto;  // of the job that runs

  // Shows long work on standard error, and ends it when a signal came: throws Interrupted. What it shows is
  // complete once all its copies are gone.
  Progress progress() const;

  std::map<const CLI::App*, std::function<int()>> jobs;  // by the command that starts each
};

struct JobInfo {
  std::string name;
  std::string summary;   // one line
  std::string examples;  // whole lines, shown at the end of --help
  std::vector<Positional> positionals = {};
};

CLI::App& add_group(CLI::App& parent, const std::string& name, const std::string& summary);

// Behind add_job(): `options` must outlive the context's jobs.
void bind_job(CLI::App& parent, Context& context, const JobInfo& info, const OptionList& options,
              std::function<int()> run);

// `run` returns the exit code, and throws what main.cpp reports.
template <HasOptions Options, class Run>
void add_job(CLI::App& parent, Context& context, const JobInfo& info, Run run) {
  auto options = std::make_shared<Options>();
  bind_job(parent, context, info, list_options(*options),
           [options, run = std::move(run), &context] { return run(std::as_const(*options), context); });
}

// After parsing: refuses what is unknown, then runs the job that was chosen. Returns its exit code.
int run_chosen_job(const CLI::App& app, const Context& context);

}  // namespace espalier::cli
