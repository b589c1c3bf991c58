// espalier demo: what growth is worth to networks that are too small
#include <fmt/format.h>

#include <cstdio>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/comparison_show.h"
#include "espalier/cli/commands/train/screen.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/jobs/demo.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

struct DemoFlags {
  EvaluateFlags all;

  DemoFlags() { all.evaluate = jobs::demo_config(); }

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "seed", .help = "seed of weights, the order of samples and their augmentation"},
      all.evaluate.population.seed);
    visit_devices(v, all.evaluate.population.devices);
    visit_folder(v, all.run);
  }
};

std::string percent(const Interval& interval) {
  return fmt::format("{:.1f} % +- {:.1f}", 100 * interval.mean, 100 * interval.half_width);
}

std::string parameters(const Interval& added, int64_t host) {
  return fmt::format("{:.0f}", (1 + added.mean) * static_cast<double>(host));
}

int demo(const DemoFlags& flags, Context& context) {
  const train::PopulationConfig& networks = flags.all.evaluate.population;
  ComparisonShow show(context, kStoppedEarly);
  jobs::EvaluateEvents events = show.events();
  int64_t host = 0;
  events.begins = [&](int64_t host_parameters) {
    host = host_parameters;
    fmt::print(
        "{} networks of {} parameters learn ten shapes from {} small pictures: first as they are, then "
        "while\n"
        "they may grow. Same first weights, same pictures in the same order. About a minute on two "
        "cores.\n",
        networks.lanes, host, networks.source.synthetic_train - networks.resident.validation);
    std::fflush(stdout);
  };
  const jobs::EvaluateResult result = jobs::run_evaluate_job(flags.all.job(), events);
  const jobs::ControllerScores &bare = result.scores[0], &grown = result.scores[1];
  const Interval gain = grown.gain_over(bare);
  watch::Table table({"", ">test accuracy", ">parameters", ">seeds kept"});
  table.add_row({"without growth", percent(bare.interval(bare.accuracy)),
                 parameters(bare.interval(bare.added), host), "0"});
  table.add_row({"with growth", percent(grown.interval(grown.accuracy)),
                 parameters(grown.interval(grown.added), host),
                 fmt::format("{:.1f}", grown.interval(grown.kept).mean)});
  table.add_row(
      {"difference", fmt::format("{:+.1f}   +- {:.1f}", 100 * gain.mean, 100 * gain.half_width), "", ""});
  fmt::print(
      "\n{}means of {} networks, 95 % intervals, differences network by network; {:.0f} s\n\n"
      "the page that shows it: {}\n"
      "what to type next:      espalier train population --lanes 8 --controller heuristic\n"
      "what growing is:        docs/growing.md\n",
      table.text(), networks.lanes, result.seconds, (result.run_dir / "report.html").string());
  return 0;
}

}  // namespace

void add_demo_command(CLI::App& app, Context& context) {
  add_job<DemoFlags>(app, context,
                     {.name = "demo",
                      .summary = "small networks with and without growth, side by side, in about a minute",
                      .examples = "  espalier demo\n"
                                  "  espalier evaluate --config-json runs/latest/config.json --episodes 4"},
                     demo);
}

}  // namespace espalier::cli
