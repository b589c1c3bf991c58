// espalier linet export
#include <fmt/format.h>

#include <filesystem>
#include <string>

#include "espalier/cli/commands.h"
#include "espalier/core/error.h"
#include "espalier/core/shared_options.h"
#include "espalier/jobs/linet.h"

namespace espalier::cli {
namespace {

namespace fs = std::filesystem;

struct ExportOptions {
  std::string from;
  std::string to;
  bool force = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "from",
       .help = "a run of `espalier train linet`, or its best.safetensors",
       .placeholder = "RUN"},
      from);
    v({.name = "to", .help = "the file to write", .placeholder = "FILE"}, to);
    v(force_option(), force);
  }
};

}  // namespace

void add_linet_command(CLI::App& app, Context& context) {
  CLI::App& group = add_group(app, "linet", "multi-stream networks outside of training");
  add_job<ExportOptions>(
      group, context,
      {.name = "export",
       .summary = "write a trained network with one tensor per stream, as PyTorch would name them",
       .examples = "  espalier linet export runs/latest linet.safetensors\n",
       .positionals = {{"from", "RUN"}, {"to", "FILE"}}},
      [](const ExportOptions& options, Context&) {
        if (options.from.empty() || options.to.empty())
          fail_usage("linet export: want a run and the file to write: espalier linet export RUN FILE");
        if (fs::exists(fs::symlink_status(options.to)) && !options.force)
          fail_usage("linet export: {} exists; give --force to overwrite it, or another name", options.to);
        jobs::export_linet(options.from, options.to);
        fmt::print(
            "{}: weights, architecture, classes, mean and deviation; python/espalier_linet.py loads it into "
            "PyTorch (docs/linet.md)\n",
            options.to);
        return 0;
      });
}

}  // namespace espalier::cli
