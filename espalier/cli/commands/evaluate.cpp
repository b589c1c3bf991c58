// espalier evaluate: controllers side by side, on the same episodes
#include <fmt/format.h>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/comparison_show.h"
#include "espalier/cli/commands/comparison_text.h"
#include "espalier/cli/commands/train/screen.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/jobs/evaluate.h"

namespace espalier::cli {
namespace {

int evaluate(const EvaluateFlags& flags, Context& context) {
  const jobs::EvaluateConfig& options = flags.evaluate;
  ComparisonShow show(context, kStoppedEarly);
  if (context.world().leads() && (options.episodes == 2 || options.episodes == 3))
    print_warning(
        fmt::format("--episodes {}: a 95 % interval over {} means is so wide that it says nothing (Student's "
                    "t = {}); ask for 8 or more",
                    options.episodes, options.episodes, options.episodes == 2 ? "12.7" : "4.3"),
        context.color);
  const jobs::EvaluateResult result = jobs::run_evaluate_job(flags.job(), show.events(), context.world());
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
