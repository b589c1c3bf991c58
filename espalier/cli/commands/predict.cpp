// espalier predict
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "espalier/cli/commands.h"
#include "espalier/cli/flags/machine.h"
#include "espalier/cli/flags/networks.h"
#include "espalier/cli/flags/source.h"
#include "espalier/core/error.h"
#include "espalier/core/files/atomic.h"
#include "espalier/core/shared_options.h"
#include "espalier/jobs/predict.h"

namespace espalier::cli {
namespace {

enum class Format : uint8_t { kJson, kSafetensors };

struct PredictFlags {
  jobs::PredictConfig config;
  std::string out;
  Format format = Format::kJson;
  bool force = false;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "from", .help = kNetworksHelp, .placeholder = "RUN"}, config.from);
    visit_lane(v, config.lane, "which network of a run or a folder: a number, or best (of validation)");
    v({.name = "ensemble",
       .help = "the best so many networks together: the mean of their probabilities; 0: one network, --lane",
       .low = 0,
       .high = 4096},
      config.ensemble);
    visit_checkpoint(v, config.checkpoint);
    v({.name = "out",
       .help = "the file to write; without it lines go to standard output",
       .placeholder = "FILE"},
      out);
    v({.name = "format",
       .help = "json: one line of JSON per image; safetensors: probabilities, classes and logits"},
      one_of(format, {{"json", Format::kJson}, {"safetensors", Format::kSafetensors}}));
    v(force_option(), force);
    visit_source(v, config.source);
    auto data = in_group(v, "Data");
    data({.name = "split", .help = "which split of data that has them"},
         one_of(config.split,
                {{"test", jobs::PredictedSplit::kTest}, {"train", jobs::PredictedSplit::kTrain}}));
    data(batch_option("images at a time"), config.batch);
    visit_device(v, config.device, "where to predict: cpu, cuda, cuda:N, or auto: a GPU where there is one");
    visit_precision(v, config.precision);
  }
};

void check_out(const PredictFlags& flags) {
  namespace fs = std::filesystem;
  if (flags.config.from.empty())
    fail_usage("predict: want a run or a network: espalier predict RUN --data SRC");
  if (flags.out.empty()) {
    if (flags.format == Format::kSafetensors)
      fail_usage("predict: --format safetensors wants a file: give --out FILE");
    return;
  }
  const fs::path out = flags.out;
  if (fs::exists(fs::symlink_status(out)) && !flags.force)
    fail_usage("predict: '{}' exists; give --force to overwrite it, or another name", flags.out);
  const fs::path folder = out.has_parent_path() ? out.parent_path() : fs::path(".");
  if (!fs::is_directory(folder))
    fail_usage("predict: '{}': its directory '{}' does not exist", flags.out, folder.string());
}

std::string line_text(const jobs::Predictions& predictions, int64_t sample) {
  return predictions.line(sample).dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

void write_lines(const jobs::Predictions& predictions, const std::string& out) {
  if (out.empty()) {
    for (int64_t i = 0; i < predictions.num_samples(); ++i) fmt::print("{}", line_text(predictions, i));
    return;
  }
  AtomicFile file(out);
  for (int64_t i = 0; i < predictions.num_samples(); ++i) file.write(line_text(predictions, i));
  file.commit();
}

int run_predict(const PredictFlags& flags, Context& context) {
  check_out(flags);
  const jobs::Predictions predictions = jobs::predict(flags.config, context.progress());
  if (flags.format == Format::kJson)
    write_lines(predictions, flags.out);
  else
    predictions.write_tensors(flags.out);
  for (const data::BadSample& bad : predictions.skipped)
    print_warning(fmt::format("{} was skipped: {}", bad.path, bad.reason), context.color);
  std::vector<int64_t> lanes;
  for (const grow::NetworkDescription& network : predictions.networks) lanes.push_back(network.origin.lane);
  // Standard output is for the lines, where they go there.
  fmt::print(flags.out.empty() ? stderr : stdout, "{} images, lane{} {}{}\n", predictions.num_samples(),
             lanes.size() == 1 ? "" : "s", fmt::join(lanes, ", "),
             predictions.accuracy() ? fmt::format(", accuracy {:.2f} %", 100 * *predictions.accuracy()) : "");
  return 0;
}

}  // namespace

void add_predict_command(CLI::App& app, Context& context) {
  add_job<PredictFlags>(
      app, context,
      {.name = "predict",
       .summary = "label images with grown networks: classes and probabilities",
       .examples = "  espalier predict runs/latest --data folder:photos --resize 32x32\n"
                   "  espalier predict net.safetensors --data cifar10:cifar-10 --out labels.jsonl\n"
                   "  espalier predict runs/latest --ensemble 5 --data cifar10:cifar-10\n",
       .positionals = {{"from", "RUN"}}},
      run_predict);
}

}  // namespace espalier::cli
