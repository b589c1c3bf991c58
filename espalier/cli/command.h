// How a command is made. A command file offers one function, add_x_command(app, context), that program.cpp
// calls; inside, add_group() makes `espalier data` and add_job() makes `espalier data info`:
//
//   CLI::App& data = add_group(app, "data", "look at data, or convert it");
//   add_job<InfoOptions>(data, context, {.name = "info", .summary = "...", .examples = "..."},
//                        [](const InfoOptions& options, Context& context) { ...; return 0; });
//
// Every job gets the flags of its options struct, and --config-json, --print-config, --tui and --color
// besides. It runs with the options complete and valid: defaults, then the file, then the flags.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/cli/bind.h"
#include "espalier/cli/launch.h"
#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/ranks/config.h"
#include "espalier/ranks/world.h"
#include "espalier/watch/terminal/colours.h"

namespace espalier::cli {

// Whether several processes may share a job out.
enum class Processes { kOne, kMany };

// What jobs may use of the program around them.
class Context {
 public:
  Launch launch;                                          // how this process was started
  std::function<void(const std::string& sentence)> lost;  // a rank was: see ranks/heartbeat.h
  // The processes of the job: one, unless join() found others.
  ranks::World& world() const { return world_ ? *world_ : ranks::World::alone(); }
  // Before a job runs. Refuses several processes for one that is for one.
  void join(const std::string& job, Processes processes, const ranks::RanksConfig& config);

  watch::ColorChoice color = watch::ColorChoice::kAuto;  // for the job that runs
  bool tui = true;  // for the job that runs: bars and live views where there is a terminal

  // Shows long work on standard error, and ends it when a signal came: throws Interrupted. What it shows is
  // complete once all its copies are gone.
  Progress progress() const;

  std::map<const CLI::App*, std::function<int()>> jobs;  // by the command that starts each

 private:
  std::unique_ptr<ranks::World> world_;  // none: alone
};

// One line on standard error.
void print_warning(std::string_view text, watch::ColorChoice color);

struct JobInfo {
  std::string name;
  std::string summary;   // one line
  std::string examples;  // whole lines, shown at the end of --help
  std::vector<Positional> positionals = {};
  std::vector<std::string_view> first = {};  // options that --help shows before all others
  // What a file that --resume names (not a run) says of the configuration, by the names of options; empty:
  // --resume takes no files.
  std::function<nlohmann::ordered_json(const std::string& file)> config_in_file = {};
  Processes processes = Processes::kOne;
};

CLI::App& add_group(CLI::App& parent, const std::string& name, const std::string& summary);

// Behind add_job(): `options` must outlive the context's jobs. Returns the command, which may get commands of
// its own.
CLI::App& bind_job(CLI::App& parent, Context& context, const JobInfo& info, const OptionList& options,
                   std::function<int()> run);

// `run` returns the exit code, and throws what program.cpp reports.
template <HasOptions Options, class Run>
CLI::App& add_job(CLI::App& parent, Context& context, const JobInfo& info, Run run) {
  auto options = std::make_shared<Options>();
  return bind_job(parent, context, info, list_options(*options), [options, run = std::move(run), &context] {
    return run(std::as_const(*options), context);
  });
}

// After parsing: refuses what is unknown, then runs the job that was chosen. Returns its exit code.
int run_chosen_job(const CLI::App& app, const Context& context);

}  // namespace espalier::cli
