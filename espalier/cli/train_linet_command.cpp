// espalier train linet
#include <fmt/format.h>

#include <algorithm>

#include "espalier/cli/commands.h"
#include "espalier/cli/train_screen.h"
#include "espalier/core/byte_size.h"
#include "espalier/train/linet_job.h"
#include "espalier/watch/table.h"

namespace espalier::cli {
namespace {

using LinetOptions = OnScreen<train::LinetOptions>;

// More classes than fit on a screen are in metrics.jsonl alone.
constexpr size_t kMostShown = 20;

std::string percent(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

void print_started(const data::ResidentDataset& dataset, train::LinetTrainer& trainer,
                   const std::filesystem::path& run) {
  std::string names;
  for (const std::string& name : trainer.stream_names()) names += (names.empty() ? "" : ", ") + name;
  fmt::print(
      "{}: {} to train on, {} to validate, {} to test; {} {}\n", dataset.origin, dataset.train.num_samples(),
      dataset.validation.num_samples(), dataset.test.num_samples(), format_byte_size(dataset.bytes()),
      dataset.residency == data::Residency::kHost ? "in pinned host memory" : "on " + dataset.device.str());
  fmt::print("streams {}; {:.2f} million parameters\nresults: {}\n", names,
             static_cast<double>(trainer.net().num_parameters()) / 1e6, run.string());
  if (dataset.format == MemoryFormat::kContiguous)
    fmt::print("memory format contiguous: there for comparison\n");
}

std::string epoch_text(const train::LinetEpoch& epoch, const LinetOptions& options,
                       const std::vector<std::string>& names) {
  std::string text =
      fmt::format("epoch {}/{}  loss {:.4f}  accuracy {:.2f} %  validation loss {:.4f}  accuracy {:.2f} %",
                  epoch.epoch, options.epochs, epoch.trained.loss, 100 * epoch.trained.accuracy,
                  epoch.validated.loss, 100 * epoch.validated.accuracy);
  const auto& alone = epoch.validated.stream_accuracies;
  for (size_t stream = 0; stream < alone.size(); ++stream)
    text +=
        fmt::format("{}{} {:.1f} %", stream == 0 ? "  alone: " : ", ", names[stream], 100 * alone[stream]);
  text += fmt::format("  {:.1f} s\n", epoch.seconds);
  for (const int64_t stream : epoch.frozen)
    text += fmt::format("  stream {} stopped improving: frozen\n", names[static_cast<size_t>(stream)]);
  if (epoch.trained.non_finite > 0)
    text += fmt::format("  {} steps were left out: their loss was not finite\n", epoch.trained.non_finite);
  if (epoch.is_last) text += fmt::format("  no better for {} epochs: the run ends\n", options.patience);
  return text;
}

void print_result(const train::LinetResult& result) {
  const train::LinetScore& whole = result.tested.whole;
  watch::Table streams({"stream", ">share of the integrated path", ">accuracy alone", ">network without it"});
  for (size_t stream = 0; stream < result.streams.size(); ++stream)
    streams.add_row({result.streams[stream], percent(whole.shares[stream]),
                     whole.stream_accuracies.empty() ? "" : percent(whole.stream_accuracies[stream]),
                     percent(result.tested.accuracy_without[stream])});
  fmt::print("\n{}", streams.text());
  if (result.class_names.size() <= kMostShown) {
    std::vector<std::string> head{"class, and how often it was taken for each"};
    for (size_t answer = 0; answer < result.class_names.size(); ++answer)
      head.push_back(fmt::format(">{}", answer));
    watch::Table confusion(head);
    for (size_t label = 0; label < result.class_names.size(); ++label) {
      std::vector<std::string> row{fmt::format("{} {}", label, result.class_names[label])};
      for (const int64_t count : whole.confusion[label]) row.push_back(std::to_string(count));
      confusion.add_row(row);
    }
    fmt::print("\n{}", confusion.text());
  }
  fmt::print(
      "\ntest accuracy {:.2f} %, mean over classes {:.2f} %, loss {:.4f}, with the network of epoch {}; "
      "{:.1f} s in all; results are in {}\n",
      100 * whole.accuracy, 100 * whole.mean_class_accuracy, whole.loss, result.best_epoch, result.seconds,
      result.run_dir.string());
}

int train_linet(const LinetOptions& options, Context& context) {
  TrainScreen screen(context, "linet", options.tui ? TrainScreen::Tui::kOn : TrainScreen::Tui::kOff);
  std::vector<std::string> names;
  train::LinetEvents events;
  events.progress = screen.progress();
  events.run = screen.run_events();
  events.started = [&](const data::ResidentDataset& dataset, train::LinetTrainer& trainer,
                       const std::filesystem::path& run) {
    names = trainer.stream_names();
    print_started(dataset, trainer, run);
    screen.begin(run, {.total = options.epochs, .samples_a_step = dataset.train.num_samples()},
                 {dataset.device});
  };
  events.epoch_done = [&](const train::LinetEpoch& epoch) { screen.say(epoch_text(epoch, options, names)); };
  const train::LinetResult result = run_linet_job(options, events);
  screen.end();
  print_result(result);
  return 0;
}

}  // namespace

void add_train_linet(CLI::App& train, Context& context) {
  add_job<LinetOptions>(
      train, context,
      {.name = "linet",
       .summary = "a residual network of several streams and one integrated path",
       .examples = "  espalier train linet\n"
                   "  espalier train linet --data safetensors:FILE --streams rgb,depth --device cuda\n"
                   "  espalier train linet --modality-dropout 0.2 --balance 0.01 --stream-patience 3\n"},
      train_linet);
}

}  // namespace espalier::cli
