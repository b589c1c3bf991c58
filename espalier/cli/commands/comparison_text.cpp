#include "espalier/cli/commands/comparison_text.h"

#include <fmt/format.h>

#include "espalier/core/sign_flip.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

std::string with_interval(const Interval& interval, double unit, int digits) {
  return fmt::format("{:.{}f} +- {:.{}f}", unit * interval.mean, digits, unit * interval.half_width, digits);
}

}  // namespace

std::string comparison_text(const jobs::EvaluateConfig& options, const jobs::EvaluateResult& result) {
  const jobs::ControllerScores& first = result.scores.front();
  watch::Table table({"controller", ">test accuracy %", ">over " + first.name + ", pair by pair", ">p",
                      ">parameters added %", ">seeds kept", ">return", ">lost"});
  for (const jobs::ControllerScores& scores : result.scores)
    table.add_row({scores.name, with_interval(scores.interval(scores.accuracy), 100, 2),
                   &scores == &first ? "" : with_interval(scores.gain_over(first), 100, 2),
                   &scores == &first ? "" : p_text(scores.chance_over(first)),
                   with_interval(scores.interval(scores.added), 100, 1),
                   with_interval(scores.interval(scores.kept), 1, 2),
                   with_interval(scores.interval(scores.returns), 1, 3), std::to_string(scores.num_lost)});
  const std::string intervals = options.episodes > 1
                                    ? fmt::format("over the means of {} episodes", options.episodes)
                                    : "over the networks of a single episode: ask for more --episodes";
  std::string text = fmt::format(
      "{}{} episodes of {} networks, {} steps each; 95 % confidence intervals (Student's t) and p-values "
      "(sign "
      "flips, two-sided) {}; {:.1f} s in all; results are in {}\n",
      table.text(), options.episodes, options.population.lanes, options.population.epochs, intervals,
      result.seconds, result.run_dir.string());
  for (const jobs::ControllerScores& scores : result.scores)
    if (scores.num_illegal > 0)
      text += fmt::format("{}: {} actions were not possible where they were replayed, and became WAIT\n",
                          scores.name, scores.num_illegal);
  return text;
}

}  // namespace espalier::cli
