// espalier export
#include <fmt/format.h>

#include "espalier/cli/commands.h"
#include "espalier/cli/flags/networks.h"
#include "espalier/core/error.h"
#include "espalier/core/shared_options.h"
#include "espalier/jobs/export.h"

namespace espalier::cli {
namespace {

struct ExportFlags {
  jobs::ExportConfig config;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "from", .help = kNetworksHelp, .placeholder = "RUN"}, config.from);
    v({.name = "out",
       .help = "NAME: writes NAME.safetensors and NAME.py; of all lanes, the folder to write pairs into",
       .placeholder = "OUT"},
      config.out);
    visit_lane(v, config.lane, "3, best (of validation) or all");
    visit_checkpoint(v, config.checkpoint);
    v(force_option("overwrite files that exist"), config.overwrite);
  }
};

std::string accuracy_text(const grow::NetworkOrigin& origin) {
  std::string text;
  if (origin.validation_accuracy)
    text += fmt::format(", validation {:.2f} %", 100 * *origin.validation_accuracy);
  if (origin.test_accuracy) text += fmt::format(", test {:.2f} %", 100 * *origin.test_accuracy);
  return text;
}

int run_export(const ExportFlags& flags, Context&) {
  if (flags.config.from.empty() || flags.config.out.empty())
    fail_usage("export: want a run and what to write: espalier export RUN OUT");
  for (const jobs::ExportedNetwork& network : jobs::export_networks(flags.config)) {
    std::string seeds;
    for (const grow::SeedDescription& seed : network.description.seeds)
      seeds += fmt::format("{}{} {}", seeds.empty() ? "" : ", ", seed.slot, seed.blueprint);
    fmt::print("{} and {}: lane {} of {}, {}{}\n", network.tensors.string(),
               network.python.filename().string(), network.description.origin.lane, network.description.host,
               seeds.empty() ? "bare" : seeds, accuracy_text(network.description.origin));
  }
  return 0;
}

}  // namespace

void add_export_command(CLI::App& app, Context& context) {
  add_job<ExportFlags>(
      app, context,
      {.name = "export",
       .summary = "write grown networks as safetensors with a plain PyTorch module in Python",
       .examples = "  espalier export runs/latest net\n"
                   "  espalier export runs/latest networks --lane all\n"
                   "  python3 -c 'import net; print(net.load())'\n",
       .positionals = {{"from", "RUN"}, {"out", "OUT"}}},
      run_export);
}

}  // namespace espalier::cli
