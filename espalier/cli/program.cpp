#include "espalier/cli/program.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/cli/commands.h"
#include "espalier/cli/help.h"
#include "espalier/cli/version.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/core/machine/program.h"
#include "espalier/watch/terminal/colours.h"

namespace {

using espalier::cli::Context;

constexpr int kFailed = 1;
constexpr int kUsage = 2;

constexpr const char* kAbout = "Trains many networks at once on one GPU, and lets them grow.";

constexpr const char* kExamples = R"(Examples:
  espalier demo                                       what growing is worth, in about a minute
  espalier doctor                                     is this machine ready?
  espalier train host                                 one small network, on pictures that it draws itself
  espalier data convert cifar10:DIR cifar10.safetensors
  espalier train host --data safetensors:cifar10.safetensors --device cuda
  espalier plan host --device cuda --batch 4096       will it fit?

'espalier COMMAND --help' tells more. Exit codes: 0 fine, 1 the run failed, 2 wrong usage.)";

int report(std::string_view message, int code, const Context& context) {
  // One line, whatever a library put into its message.
  std::string line;
  for (const char c : message) {
    const bool is_space = c == '\n' || c == '\r' || c == '\t' || c == ' ';
    if (!is_space) {
      line.push_back(c);
    } else if (!line.empty() && line.back() != ' ') {
      line.push_back(' ');
    }
  }
  if (!line.empty() && line.back() == ' ') line.pop_back();
  const bool is_colored = espalier::watch::uses_color(context.color, STDERR_FILENO);
  fmt::print(stderr, "espalier: {} {}\n",
             espalier::watch::painted("error:", espalier::watch::Color::kRed, is_colored), line);
  return code;
}

// "a. b. c. d." with 2: "a. b".
std::string first_sentences(std::string_view text, int count) {
  size_t end = 0;
  while (count-- > 0 && end != text.npos) end = text.find(". ", end == 0 ? 0 : end + 2);
  return std::string(text.substr(0, end));
}

int run(int argc, char** argv, Context& context) {
  CLI::App app(kAbout, "espalier");
  app.formatter(espalier::cli::make_help_formatter(espalier::watch::columns(STDOUT_FILENO)));
  app.set_help_flag("-h,--help", "print this help, and exit")->group(espalier::cli::kOwnFlags);
  app.set_version_flag("--version", espalier::cli::version_text, "print versions and the commit, and exit")
      ->group(espalier::cli::kOwnFlags);
  app.footer(kExamples);
  app.require_subcommand(0, 1)->allow_extras();
  espalier::cli::add_demo_command(app, context);
  espalier::cli::add_data_command(app, context);
  espalier::cli::add_train_command(app, context);
  espalier::cli::add_evaluate_command(app, context);
  espalier::cli::add_export_command(app, context);
  espalier::cli::add_predict_command(app, context);
  espalier::cli::add_inspect_command(app, context);
  espalier::cli::add_linet_command(app, context);
  espalier::cli::add_runs_command(app, context);
  espalier::cli::add_report_command(app, context);
  espalier::cli::add_compare_command(app, context);
  espalier::cli::add_watch_command(app, context);
  espalier::cli::add_plan_command(app, context);
  espalier::cli::add_profile_command(app, context);
  espalier::cli::add_bench_command(app, context);
  espalier::cli::add_doctor_command(app, context);
  espalier::cli::add_man_command(app, context);
  espalier::cli::add_completion_command(app, context);
  try {
    std::vector<std::string> words(argv + 1, argv + argc);
    // `espalier help train ppo` and `espalier version`, as other tools have them.
    if (!words.empty() && words.front() == "help") {
      words.erase(words.begin());
      words.emplace_back("--help");
    } else if (words == std::vector<std::string>{"version"}) {
      words.front() = "--version";
    }
    std::ranges::reverse(words);  // as CLI11 wants them
    app.parse(std::move(words));
    return espalier::cli::run_chosen_job(app, context);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return 0;
  } catch (const CLI::ParseError& error) {
    return report(error.what(), kUsage, context);
  }
}

// A step takes and frees the same blocks again and again. glibc would hand their pages back to the system
// each time and fault them in again: a quarter of a training step's time on the CPU.
void keep_freed_memory() {
#if defined(__GLIBC__)
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
#endif
}

// A rank was lost, and this thread is not the one that works: nothing is unwound.
void end_at_once(const std::string& sentence, const Context& context) {
  espalier::perform_last_act();
  report(sentence, kFailed, context);
  std::_Exit(kFailed);
}

// A failure of one process ends all of them; where another gave the same reason, it is not repeated.
int report_to_all(std::string_view message, int code, Context& context) {
  return context.world().tell_failure(std::string(message)) ? report(message, code, context) : code;
}

// All ranks come to the end together, also where all of them were interrupted; one that is lost there is told
// as anywhere else.
int run_to_end(int argc, char** argv, Context& context) {
  int code = 0;
  try {
    code = run(argc, argv, context);
  } catch (const espalier::Interrupted& interrupted) {
    code = interrupted.exit_code();
  }
  context.world().finish();
  return code;
}

int run_guarded(int argc, char** argv, Context& context) {
  try {
    return run_to_end(argc, argv, context);
  } catch (const espalier::UsageError& error) {
    return report_to_all(error.what(), kUsage, context);
  } catch (const c10::OutOfMemoryError& error) {
    // Torch's message begins with what was needed and what is free.
    return report_to_all(fmt::format("{}: lower --lanes, --batch or --width, or use --residency host; "
                                     "'espalier plan' tells what a run takes",
                                     first_sentences(error.what_without_backtrace(), 3)),
                         kFailed, context);
  } catch (const c10::Error& error) {
    return report_to_all(error.what_without_backtrace(), kFailed, context);
  } catch (const std::bad_alloc&) {
    return report_to_all("out of host memory", kFailed, context);
  } catch (const std::exception& error) {
    return report_to_all(error.what(), kFailed, context);
  }
}

}  // namespace

namespace espalier::cli {

int run_program(int argc, char** argv, const Launch& launch) {
  // cuBLAS reads it when CUDA starts; without it, its results may change from run to run. The user's own
  // wins.
  setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
  keep_freed_memory();
  catch_interrupts();
  set_program_facts({version(), git_commit(), shell_line(argc, argv)});
  Context context;
  context.launch = launch;
  context.lost = [&context](const std::string& sentence) { end_at_once(sentence, context); };
  const int code = run_guarded(argc, argv, context);
  // Output that did not arrive (a full disk) must not look like success.
  const bool has_arrived = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (code == 0 && !has_arrived) return report("cannot write to standard output", kFailed, context);
  return code;
}

}  // namespace espalier::cli
