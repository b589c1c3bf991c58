// espalier evaluate: controllers side by side, on the same episodes
#include <fmt/format.h>

#include "espalier/cli/commands.h"
#include "espalier/train/evaluate_job.h"
#include "espalier/watch/table.h"

namespace espalier::cli {
namespace {

using train::EvaluateOptions;
using train::Interval;

std::string with_interval(const Interval& interval, double unit, int digits) {
  return fmt::format("{:.{}f} +- {:.{}f}", unit * interval.mean, digits, unit * interval.half_width, digits);
}

int evaluate(const EvaluateOptions& options, Context& context) {
  train::EvaluateEvents events;
  events.progress = context.progress();
  const train::EvaluateResult result = train::run_evaluate_job(options, events);

  const train::ControllerScores& first = result.scores.front();
  watch::Table table({"controller", ">test accuracy %", ">over " + first.name + ", pair by pair",
                      ">parameters added %", ">seeds kept", ">return", ">lost"});
  for (const train::ControllerScores& scores : result.scores)
    table.add_row({scores.name, with_interval(scores.interval(scores.accuracy), 100, 2),
                   &scores == &first ? "" : with_interval(scores.gain_over(first), 100, 2),
                   with_interval(scores.interval(scores.added), 100, 1),
                   with_interval(scores.interval(scores.kept), 1, 2),
                   with_interval(scores.interval(scores.returns), 1, 3), std::to_string(scores.num_lost)});
  const std::string intervals = options.episodes > 1
                                    ? fmt::format("over the means of {} episodes", options.episodes)
                                    : "over the networks of a single episode: ask for more --episodes";
  fmt::print(
      "{}{} episodes of {} networks, {} steps each; 95 % confidence intervals (Student's t) {}; {:.1f} s in "
      "all; results are in {}\n",
      table.text(), options.episodes, options.population.lanes, options.population.epochs, intervals,
      result.seconds, result.run_dir.string());
  return 0;
}

}  // namespace

void add_evaluate_command(CLI::App& app, Context& context) {
  add_job<EvaluateOptions>(
      app, context,
      {.name = "evaluate",
       .summary = "compare controllers on the same episodes",
       .examples = "  espalier evaluate --controllers none,random,heuristic --episodes 4\n"
                   "  espalier evaluate --controllers random,ppo:policy.safetensors --episodes 8 --greedy\n"},
      evaluate);
}

}  // namespace espalier::cli
