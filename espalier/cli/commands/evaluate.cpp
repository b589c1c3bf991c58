// espalier evaluate: controllers side by side, on the same episodes
#include <fmt/format.h>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/comparison_text.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/jobs/evaluate.h"
#include "espalier/run/earlier.h"

namespace espalier::cli {
namespace {

int evaluate(const EvaluateFlags& flags, Context& context) {
  const jobs::EvaluateConfig& options = flags.evaluate;
  jobs::EvaluateEvents events;
  events.progress = context.progress();
  events.run.warned = [&](const std::string& text) { print_warning(text, context.color); };
  events.run.noted = [](const std::string& text) { fmt::print("{}\n", text); };
  events.run.resumed = [](const std::string& checkpoint) {
    fmt::print("goes on from checkpoint {}\n", checkpoint);
  };
  events.run.stopped = [](const std::filesystem::path& run) {
    fmt::print("stopped; to go on: {}\n", run::resume_command("evaluate", run));
  };
  if (context.world().leads() && (options.episodes == 2 || options.episodes == 3))
    print_warning(
        fmt::format("--episodes {}: a 95 % interval over {} means is so wide that it says nothing (Student's "
                    "t = {}); ask for 8 or more",
                    options.episodes, options.episodes, options.episodes == 2 ? "12.7" : "4.3"),
        context.color);
  const jobs::EvaluateResult result = jobs::run_evaluate_job(flags.job(), events, context.world());
  if (context.world().leads()) fmt::print("{}", comparison_text(options, result));
  return 0;
}

}  // namespace

void add_evaluate_command(CLI::App& app, Context& context) {
  add_job<EvaluateFlags>(
      app, context,
      {.name = "evaluate",
       .summary = "compare controllers on the same episodes",
       .examples = "  espalier evaluate --controllers none,random,heuristic\n"
                   "  espalier evaluate --controllers random,ppo:policy.safetensors --episodes 16 --greedy\n"
                   "  espalier evaluate --controllers none,ppo:policy.safetensors,static,replay\n",
       .first = {"controllers", "episodes", "data", "lanes", "episode-length", "batch", "host", "devices",
                 "seed", "run-dir"},
       .processes = Processes::kMany},
      evaluate);
}

}  // namespace espalier::cli
