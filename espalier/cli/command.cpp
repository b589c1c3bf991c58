#include "espalier/cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "espalier/cli/help.h"
#include "espalier/core/interrupt.h"
#include "espalier/watch/progress_bar.h"

namespace espalier::cli {
namespace {

// What every job has besides its own options; not part of its configuration.
struct JobFlags {
  std::string config_json;
  bool print_config = false;
  std::string color = "auto";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "config-json",
       .help = "read the configuration from this file, as --print-config prints it; flags override it",
       .placeholder = "FILE"},
      config_json);
    v({.name = "print-config", .help = "print the whole configuration as JSON, and exit"}, print_config);
    v({.name = "color",
       .help = "colours in what is printed; auto: on a terminal, unless NO_COLOR is set",
       .choices = {"auto", "always", "never"}},
      color);
  }
};

// All that a bound job needs at run time, kept together by the function that runs it.
struct BoundJob {
  JobFlags flags;
  OptionList options;
  std::unique_ptr<Binding> flag_binding;
  std::unique_ptr<Binding> option_binding;
};

// A run that is resumed has its own configuration; flags still override it, and are then compared.
std::string resumed_config(const OptionList& options) {
  namespace fs = std::filesystem;
  for (const OptionRef& option : options) {
    if (option.info.name != "resume") continue;
    const std::string& given = *std::get<std::string*>(option.value);
    if (given.empty()) return {};
    const fs::path path = given == "latest" ? fs::path("runs") / given : fs::path(given);
    for (const fs::path& run : {path, path / ".." / ".."})
      if (fs::is_regular_file(run / "config.json")) return (run / "config.json").string();
  }
  return {};
}

}  // namespace

Progress Context::progress() const {
  return [show = watch::make_progress(watch::stderr_style(color))](std::string_view what, int64_t done,
                                                                   int64_t total) {
    throw_if_interrupted();
    show(what, done, total);
  };
}

CLI::App& add_group(CLI::App& parent, const std::string& name, const std::string& summary) {
  // At most one subcommand, checked by refuse_unknown(): a later word is then never taken for another
  // command.
  CLI::App& app = *parent.add_subcommand(name, summary)->require_subcommand(0, 1)->allow_extras()->footer("");
  app.get_help_ptr()->group(kSharedFlags);
  return app;
}

void bind_job(CLI::App& parent, Context& context, const JobInfo& info, const OptionList& options,
              std::function<int()> run) {
  CLI::App& app = *parent.add_subcommand(info.name, info.summary)->allow_extras();
  app.footer(info.examples.empty() ? "" : "Examples:\n" + info.examples);
  auto job = std::make_shared<BoundJob>();
  job->options = options;
  job->option_binding = std::make_unique<Binding>(app, options, info.positionals, kOwnFlags);
  job->flag_binding =
      std::make_unique<Binding>(app, list_options(job->flags), std::vector<Positional>{}, kSharedFlags);
  app.get_help_ptr()->group(kSharedFlags);
  context.jobs[&app] = [job, &context, run = std::move(run)] {
    job->flag_binding->apply();
    context.color = watch::parse_color_choice(job->flags.color);
    std::string config = job->flags.config_json;
    job->option_binding->apply();
    if (config.empty()) config = resumed_config(job->options);
    if (!config.empty()) {
      read_config_file(job->options, config);
      job->option_binding->apply();
    }
    validate(job->options);
    if (job->flags.print_config) {
      fmt::print("{}", config_text(job->options));
      return 0;
    }
    return run();
  };
}

int run_chosen_job(const CLI::App& app, const Context& context) {
  refuse_unknown(app);
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  return context.jobs.at(chosen)();
}

}  // namespace espalier::cli
