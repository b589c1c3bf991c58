// espalier train linet
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "espalier/cli/commands.h"
#include "espalier/cli/commands/score_text.h"
#include "espalier/cli/commands/train/screen.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/jobs/linet.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

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

std::string epoch_text(const train::LinetEpoch& epoch, const train::LinetConfig& options,
                       const std::vector<std::string>& names, int64_t num_validation) {
  const bool is_original = options.rules == linet::LinetRules::kOriginal;
  std::string text =
      fmt::format("epoch {}/{}  loss {}  accuracy {:.2f} %  validation loss {}  accuracy {}", epoch.epoch,
                  options.epochs, loss_text(epoch.trained.loss), 100 * epoch.trained.accuracy,
                  loss_text(epoch.validated.loss, num_validation),
                  accuracy_text(epoch.validated.accuracy, num_validation));
  const auto& alone = epoch.validated.stream_accuracies;
  for (size_t stream = 0; stream < alone.size() && num_validation > 0; ++stream)
    text +=
        fmt::format("{}{} {:.1f} %", stream == 0 ? "  alone: " : ", ", names[stream], 100 * alone[stream]);
  text += fmt::format("  {:.1f} s\n", epoch.seconds);
  for (const int64_t stream : epoch.frozen)
    text += fmt::format("  stream {} stopped improving: frozen{}\n", names[static_cast<size_t>(stream)],
                        is_original ? ", with its best weights" : "");
  if (epoch.trained.non_finite > 0)
    text += fmt::format("  {} steps were left out: their loss was not finite\n", epoch.trained.non_finite);
  const auto& fallbacks = epoch.trained.norm_fallbacks;
  if (const int64_t count = std::reduce(fallbacks.begin(), fallbacks.end()); count > 0)
    text +=
        fmt::format("  {} norms were left a single value per channel: running statistics stood in\n", count);
  if (epoch.is_last)
    text += is_original && epoch.are_all_frozen
                ? "  every stream is frozen: the run ends\n"
                : fmt::format("  no better for {} epochs: the run ends\n", options.patience);
  return text;
}

void print_result(const jobs::LinetResult& result) {
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
      "\ntest accuracy {:.2f} %, mean over classes {:.2f} %, loss {}, with the network of epoch {}; "
      "{:.1f} s in all; results are in {}\n",
      100 * whole.accuracy, 100 * whole.mean_class_accuracy, loss_text(whole.loss), result.best_epoch,
      result.seconds, result.run_dir.string());
}

int train_linet(const LinetFlags& flags, Context& context) {
  const train::LinetConfig& options = flags.linet;
  TrainScreen screen(context, "linet");
  LossAlarm alarm(options.learning_rate);
  int64_t num_classes = 0, num_validation = 0;
  std::vector<std::string> names;
  jobs::LinetEvents events;
  events.progress = screen.progress();
  events.run = screen.run_events();
  events.started = [&](const data::ResidentDataset& dataset, train::LinetTrainer& trainer,
                       const std::filesystem::path& run) {
    names = trainer.stream_names();
    num_classes = dataset.num_classes();
    num_validation = dataset.validation.num_samples();
    print_started(dataset, trainer, run);
    screen.begin(run, {.total = options.epochs, .samples_a_step = dataset.train.num_samples()},
                 {dataset.device});
  };
  events.epoch_done = [&](const train::LinetEpoch& epoch) {
    screen.say(epoch_text(epoch, options, names, num_validation));
    if (const auto text = alarm.check(epoch.trained.loss, num_classes)) screen.warn(*text);
  };
  const jobs::LinetResult result = run_linet_job(flags.job(), events, context.world());
  screen.end();
  if (context.world().leads()) print_result(result);
  return 0;
}

}  // namespace

void add_train_linet(CLI::App& train, Context& context) {
  add_job<LinetFlags>(
      train, context,
      {.name = "linet",
       .summary = "a residual network of several streams and one integrated path",
       .examples = "  espalier train linet\n"
                   "  espalier train linet --data safetensors:FILE --streams rgb,depth --device cuda\n"
                   "  espalier train linet --modality-dropout 0.2 --balance 0.01 --stream-patience 3\n"
                   "  torchrun --nproc-per-node 2 -m espalier train linet --batch 128 --run-dir runs/both\n",
       .first = {"data", "model", "streams", "epochs", "batch", "learning-rate", "device", "precision",
                 "run-dir", "resume"},
       .processes = Processes::kMany},
      train_linet);
}

}  // namespace espalier::cli
