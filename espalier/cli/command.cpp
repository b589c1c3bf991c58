#include "espalier/cli/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "espalier/cli/help.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/run/earlier.h"
#include "espalier/run/location.h"
#include "espalier/watch/terminal/progress_bar.h"

namespace espalier::cli {
namespace {

// What every job has besides its own options; not part of its configuration.
struct JobFlags {
  std::string config_json;
  bool print_config = false;
  std::string color = "auto";
  bool tui = true;

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
    v({.name = "tui",
       .help = "live views and progress bars where the output is a terminal; without: plain lines"},
      tui);
  }
};

// What jobs of several processes have besides; not part of a configuration either.
struct RankFlags {
  ranks::RanksConfig ranks;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "backend",
       .help =
           "what carries messages between ranks, as torch.distributed names it; auto: gloo, and nccl between "
           "GPUs; one that is named carries those of a single rank, too, to try it",
       .placeholder = "NAME"},
      ranks.backend);
    v({.name = "rank-limit",
       .help = "seconds after which a rank that is not heard from ends the run, on all ranks",
       .low = 1,
       .high = 1e6,
       .placeholder = "SECONDS"},
      ranks.limit_seconds);
  }
};

// All that a bound job needs at run time, kept together by the function that runs it.
struct BoundJob {
  JobFlags flags;
  RankFlags rank_flags;
  OptionList options;
  std::unique_ptr<Binding> flag_binding;
  std::unique_ptr<Binding> option_binding;
  std::unique_ptr<Binding> rank_binding;  // none: the job is one process
};

const OptionRef* find_option(const OptionList& options, std::string_view name) {
  const auto found =
      std::ranges::find(options, name, [](const OptionRef& option) { return option.info.name; });
  return found == options.end() ? nullptr : &*found;
}

// The directory of the run that --resume names, where there is one.
std::optional<std::filesystem::path> resumed_run(const std::string& given) {
  namespace fs = std::filesystem;
  const fs::path path = given == "latest" ? fs::path(run::kRunsFolder) / given : fs::path(given);
  for (const fs::path& run : {path, path / ".." / ".."})
    if (fs::is_regular_file(run / "config.json")) return run;
  return std::nullopt;
}

// A run that is resumed has its own configuration; flags still override it, and are then compared. How it was
// started (where, and whether afresh) is not part of that.
void read_resumed_config(const OptionList& options, const JobInfo& info) {
  const OptionRef* const resume = find_option(options, "resume");
  const std::string given = resume == nullptr ? std::string() : value_text(*resume);
  if (given.empty()) return;
  if (info.config_in_file && std::filesystem::is_regular_file(given))
    return from_json(options, info.config_in_file(given), given);
  const std::optional<std::filesystem::path> run = resumed_run(given);
  if (!run) return;
  if (const std::string job = run::job_of(*run); !job.empty() && job != info.name)
    fail_usage("--resume {}: {}, and this is {}: go on with it by '{}'", given, run::kind_text(job),
               info.name, run::resume_command(job, given));
  std::vector<std::pair<const OptionRef*, std::string>> kept;
  for (const char* const name : {"run-dir", "restart", "allow-change"})
    if (const OptionRef* const option = find_option(options, name))
      kept.emplace_back(option, value_text(*option));
  read_config_file(options, (*run / "config.json").string());
  for (const auto& [option, text] : kept) set_from_text(*option, text);
}

// Each of several processes that a launcher started would do the whole job. The launchers in the order of
// python/espalier/launch.py: the first that is there holds.
void refuse_launcher() {
  struct Launcher {
    const char* rank;
    const char* size;
  };
  constexpr Launcher kLaunchers[] = {{"RANK", "WORLD_SIZE"},
                                     {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"},
                                     {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
                                     {"PMI_SIZE", "PMI_SIZE"}};
  const auto is_there = [](const Launcher& launcher) {
    return std::getenv(launcher.rank) != nullptr && std::getenv(launcher.size) != nullptr;
  };
  const auto* const found = std::ranges::find_if(kLaunchers, is_there);
  if (found == std::end(kLaunchers) || std::string_view(std::getenv(found->size)) == "1") return;
  fail_usage(
      "{} is {}, and this program is one process by itself: start the ranks of a job as 'torchrun "
      "--nproc-per-node N -m espalier ...', 'mpirun -np N python3 -m espalier ...' or 'srun -n N python3 -m "
      "espalier ...' (docs/scaling.md), or unset {}",
      found->size, std::getenv(found->size), found->size);
}

}  // namespace

Progress Context::progress() const {
  watch::ProgressStyle style = watch::stderr_style(tui ? color : watch::ColorChoice::kNever);
  if (!tui) style.shape = watch::ProgressShape::kLines;
  return [show = watch::make_progress(std::move(style))](std::string_view what, int64_t done, int64_t total) {
    throw_if_interrupted();
    show(what, done, total);
  };
}

void Context::join(const std::string& job, Processes processes, const ranks::RanksConfig& config) {
  if (launch.size == 1) {
    if (processes == Processes::kMany) refuse_launcher();
    if (config.backend == ranks::RanksConfig().backend) return;
    if (!launch.join)
      fail_usage(
          "--backend {}: carries messages between ranks, and this program is one process by itself: start it "
          "as 'python3 -m espalier ...' (docs/scaling.md), or leave --backend out",
          config.backend);
  }
  if (processes == Processes::kOne)
    fail_usage("{}: is done by one process, and {} were started: start it without torchrun, mpirun or srun",
               job, launch.size);
  leave_interrupts_to_an_agreement();
  world_ = std::make_unique<ranks::World>(
      ranks::Membership{.group = launch.join(config.backend, config.limit_seconds),
                        .local_rank = launch.local_rank,
                        .limit_seconds = config.limit_seconds,
                        .store_address = launch.store_address,
                        .agent_keeps_store = launch.agent_keeps_store,
                        .ended = lost});
  if (world_->leads()) return;
  // Rank 0 speaks for all; errors are every rank's own.
  tui = false;
  const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  if (nowhere >= 0) {
    dup2(nowhere, STDOUT_FILENO);
    close(nowhere);
  }
}

void print_warning(std::string_view text, watch::ColorChoice color) {
  const bool is_colored = watch::uses_color(color, STDERR_FILENO);
  fmt::print(stderr, "espalier: {} {}\n", watch::painted("warning:", watch::Color::kYellow, is_colored),
             text);
}

CLI::App& add_group(CLI::App& parent, const std::string& name, const std::string& summary) {
  // At most one subcommand, checked by refuse_unknown(): a later word is then never taken for another
  // command.
  CLI::App& app = *parent.add_subcommand(name, summary)->require_subcommand(0, 1)->allow_extras()->footer("");
  app.get_help_ptr()->group(kSharedFlags);
  return app;
}

CLI::App& bind_job(CLI::App& parent, Context& context, const JobInfo& info, const OptionList& options,
                   std::function<int()> run) {
  // A job runs by itself: what the parent requires is not passed on.
  CLI::App& app = *parent.add_subcommand(info.name, info.summary)->require_subcommand(0)->allow_extras();
  app.footer(info.examples.empty() ? "" : "Examples:\n" + info.examples);
  auto job = std::make_shared<BoundJob>();
  job->options = options;
  for (OptionRef& option : job->options)
    if (std::ranges::count(info.first, option.info.name) > 0) option.info.group = kFirstFlags;
  job->option_binding = std::make_unique<Binding>(app, job->options, info.positionals, kOwnFlags);
  job->flag_binding =
      std::make_unique<Binding>(app, list_options(job->flags), std::vector<Positional>{}, kSharedFlags);
  if (info.processes == Processes::kMany)
    job->rank_binding =
        std::make_unique<Binding>(app, list_options(job->rank_flags), std::vector<Positional>{}, "Ranks");
  app.get_help_ptr()->group(kSharedFlags);
  context.jobs[&app] = [job, &context, info, run = std::move(run)] {
    job->flag_binding->apply();
    context.color = watch::parse_color_choice(job->flags.color);
    context.tui = job->flags.tui;
    job->option_binding->apply();
    if (const std::string& file = job->flags.config_json; !file.empty())
      read_config_file(job->options, file);
    else
      read_resumed_config(job->options, info);
    job->option_binding->apply();
    validate(job->options);
    if (job->flags.print_config) {
      fmt::print("{}", config_text(job->options));
      return 0;
    }
    if (job->rank_binding) {
      job->rank_binding->apply();
      validate(list_options(job->rank_flags));
    }
    context.join(info.name, info.processes, job->rank_flags.ranks);
    return run();
  };
  return app;
}

int run_chosen_job(const CLI::App& app, const Context& context) {
  refuse_unknown(app);
  const CLI::App* chosen = &app;
  while (!chosen->get_subcommands().empty()) chosen = chosen->get_subcommands().front();
  return context.jobs.at(chosen)();
}

}  // namespace espalier::cli
