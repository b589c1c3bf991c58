// espalier compare: runs side by side
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/runs/summary.h"
#include "espalier/cli/help.h"
#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/watch/lines/reader.h"
#include "espalier/watch/page/data.h"
#include "espalier/watch/page/report.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

struct CompareOptions {
  std::string out;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "out",
       .help = "also write a page with their curves, one over the other",
       .placeholder = "FILE"},
      out);
  }
};

std::string value_text(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

// Every evaluation's, each once.
std::vector<std::string> controllers_of(const std::vector<watch::RunRecord>& runs) {
  std::vector<std::string> names;
  for (const watch::RunRecord& run : runs)
    for (const std::string& name : run.controllers)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  return names;
}

std::string evaluated_text(const watch::RunRecord& run, const std::string& controller) {
  for (const watch::Evaluated& each : run.evaluated)
    if (run.controllers[each.controller] == controller)
      return fmt::format("{} +- {}", percent_text(watch::number_in(each.numbers, "test_accuracy")),
                         percent_text(watch::number_in(each.numbers, "test_accuracy_95")));
  return "";
}

void print_comparison(const std::vector<watch::RunRecord>& runs) {
  std::vector<std::string> head{""};
  for (const watch::RunRecord& run : runs) head.push_back(">" + run.name);
  watch::Table table(head);
  const auto add = [&](const std::string& name, const auto& text_of) {
    std::vector<std::string> row{name};
    for (const watch::RunRecord& run : runs) row.push_back(text_of(run));
    table.add_row(row);
  };
  using Run = watch::RunRecord;
  add("job", [](const Run& run) { return run.job; });
  add("state", [](const Run& run) { return std::string(watch::name_of(run.state)); });
  add("done", progress_text);
  add("best validation accuracy",
      [](const Run& run) { return percent_text(run.best().validation_accuracy); });
  add("test accuracy", [](const Run& run) { return percent_text(run.test_accuracy()); });
  if (std::ranges::any_of(runs, [](const Run& run) { return std::isfinite(run.last_return()); }))
    add("return of the policy", [](const Run& run) { return return_text(run.last_return()); });
  for (const std::string& name : controllers_of(runs))
    add(fmt::format("test accuracy, {}", name), [&](const Run& run) { return evaluated_text(run, name); });
  add("duration", [](const Run& run) { return duration_text(run.seconds()); });
  const nlohmann::ordered_json differing = watch::differing_options(runs);
  for (const auto& [key, values] : differing.items()) {
    std::vector<std::string> row{"--" + key};
    for (const auto& value : values) row.push_back(value_text(value));
    table.add_row(row);
  }
  fmt::print("{}", table.text());
  if (differing.empty()) fmt::print("all options are the same\n");
}

int compare(const std::vector<std::string>& names, const CompareOptions& options) {
  if (names.size() < 2) fail_usage("compare: want two runs or more, got {}", names.size());
  std::vector<watch::RunRecord> runs;
  for (const std::string& name : names) {
    watch::check_is_run(name);
    runs.push_back(watch::read_run(name));
  }
  print_comparison(runs);
  if (options.out.empty()) return 0;
  AtomicFile file(options.out);
  file.write(watch::comparison_page(runs));
  file.commit();
  fmt::print("{}\n", options.out);
  return 0;
}

}  // namespace

void add_compare_command(CLI::App& app, Context& context) {
  const auto names = std::make_shared<std::vector<std::string>>();
  add_job<CompareOptions>(
      app, context,
      {.name = "compare",
       .summary = "runs side by side: their results, what was set differently, their curves",
       .examples = "  espalier compare runs/ppo-*\n  espalier compare runs/a runs/b --out compare.html\n"},
      [names](const CompareOptions& options, Context&) { return compare(*names, options); });
  app.get_subcommand("compare")
      ->add_option("RUN,--run", *names, "directories of runs, two or more")
      ->group(kOwnFlags);
}

}  // namespace espalier::cli
