// espalier train host
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "espalier/cli/commands.h"
#include "espalier/core/byte_size.h"
#include "espalier/train/host_job.h"

namespace espalier::cli {
namespace {

using train::HostJobOptions;

int train_host(const HostJobOptions& options, Context& context) {
  train::HostJobEvents events;
  events.progress = context.progress();
  events.started = [&](const data::ResidentDataset& dataset, const train::MemoryPlan& plan,
                       const std::filesystem::path& run) {
    fmt::print(
        "{}: {} to train on, {} to validate, {} to test; {} {}\n", dataset.origin,
        dataset.train.num_samples(), dataset.validation.num_samples(), dataset.test.num_samples(),
        format_byte_size(dataset.bytes()),
        dataset.residency == data::Residency::kHost ? "in pinned host memory" : "on " + dataset.device.str());
    if (plan.budget_bytes > 0)
      fmt::print("device memory: {} planned of {}; CUDA itself took {} when it started\n",
                 format_byte_size(plan.total_bytes()), format_byte_size(plan.budget_bytes),
                 format_byte_size(plan.context_bytes));
    fmt::print("results: {}\n", run.string());
    std::fflush(stdout);
  };
  events.epoch_done = [&](const train::EpochRecord& epoch) {
    fmt::print(
        "epoch {}/{}  loss {:.4f}  accuracy {:.2f} %  validation loss {:.4f}  accuracy {:.2f} %  {:.1f} s\n",
        epoch.epoch, options.epochs, epoch.train_loss, 100 * epoch.train_accuracy, epoch.validation_loss,
        100 * epoch.validation_accuracy, epoch.seconds);
    std::fflush(stdout);
  };
  const train::HostJobResult result = run_host_job(options, events);
  fmt::print("test accuracy {:.2f} %, loss {:.4f}, {:.1f} s in all; results are in {}\n",
             100 * result.test_accuracy, result.test_loss, result.seconds, result.run_dir.string());
  return 0;
}

}  // namespace

void add_train_command(CLI::App& app, Context& context) {
  CLI::App& train = add_group(app, "train", "train networks");
  add_job<HostJobOptions>(
      train, context,
      {.name = "host",
       .summary = "one small convolutional network",
       .examples = "  espalier train host\n"
                   "  espalier train host --data cifar10:DIR --device cuda --epochs 12 --batch 512\n"},
      train_host);
}

}  // namespace espalier::cli
