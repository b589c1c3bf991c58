// espalier report: a run as one page
#include "espalier/watch/page/report.h"

#include <fmt/format.h>

#include "espalier/cli/commands.h"
#include "espalier/core/error.h"
#include "espalier/watch/lines/reader.h"

namespace espalier::cli {
namespace {

struct ReportOptions {
  std::string run;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "run", .help = "the run's directory", .placeholder = "RUN_DIR"}, run);
  }
};

}  // namespace

void add_report_command(CLI::App& app, Context& context) {
  add_job<ReportOptions>(
      app, context,
      {.name = "report",
       .summary = "write report.html into a run's directory: one page that needs nothing else",
       .examples = "  espalier report runs/latest\n",
       .positionals = {{"run", "RUN_DIR"}}},
      [](const ReportOptions& options, Context&) {
        if (options.run.empty()) fail_usage("report: want a run's directory, such as runs/latest");
        watch::check_is_run(options.run);
        fmt::print("{}\n", watch::write_report(options.run).string());
        return 0;
      });
}

}  // namespace espalier::cli
