// espalier linet export
#include <fmt/format.h>

#include <string>

#include "espalier/cli/commands.h"
#include "espalier/core/error.h"
#include "espalier/train/linet_job.h"

namespace espalier::cli {
namespace {

struct ExportOptions {
  std::string from;
  std::string to;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "from",
       .help = "a run of `espalier train linet`, or its best.safetensors",
       .placeholder = "RUN"},
      from);
    v({.name = "to", .help = "the file to write", .placeholder = "FILE"}, to);
  }
};

}  // namespace

void add_linet_command(CLI::App& app, Context& context) {
  CLI::App& group = add_group(app, "linet", "multi-stream networks outside of training");
  add_job<ExportOptions>(
      group, context,
      {.name = "export",
       .summary = "write a trained network with a tensor a stream, as PyTorch would name them",
       .examples = "  espalier linet export runs/latest linet.safetensors\n",
       .positionals = {{"from", "RUN"}, {"to", "FILE"}}},
      [](const ExportOptions& options, Context&) {
        if (options.from.empty() || options.to.empty())
          fail_usage("linet export: want a run and the file to write: espalier linet export RUN FILE");
        train::export_linet(options.from, options.to);
        fmt::print("{}: in Python, safetensors.torch.load_file() reads it as a state_dict\n", options.to);
        return 0;
      });
}

}  // namespace espalier::cli
