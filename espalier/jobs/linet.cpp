#include "espalier/jobs/linet.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/machine/device_memory.h"
#include "espalier/data/cache.h"
#include "espalier/jobs/best_linet.h"
#include "espalier/jobs/facts/batch_picture.h"
#include "espalier/jobs/facts/dataset.h"
#include "espalier/jobs/scope.h"
#include "espalier/linet/file.h"
#include "espalier/run/directory.h"
#include "espalier/run/earlier.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/tensor/device.h"
#include "espalier/train/memory/linet.h"
#include "espalier/train/memory/plan.h"
#include "espalier/train/population/setup.h"

namespace espalier::jobs {
namespace {

using nlohmann::ordered_json;

ordered_json environment(const train::LinetConfig& options, const data::ResidentDataset& dataset,
                         train::LinetTrainer& trainer, const ranks::World& world) {
  const linet::LinetShape& shape = trainer.net().shape();
  return {{"device", dataset.device.str()},
          {"precision", trainer.compute() == at::kFloat  ? "fp32"
                        : trainer.compute() == at::kHalf ? "fp16"
                                                         : "bf16"},
          {"ranks", world.size()},
          {"threads", at::get_num_threads()},
          {"deterministic", options.deterministic},
          {"graphs", trainer.step().graphs().is_capturing()},
          {"memory_format", dataset.format == MemoryFormat::kChannelsLast ? "channels_last" : "contiguous"},
          {"validation_batch", train::options_of_rank(options, world).batch},
          {"streams", trainer.stream_names()},
          {"widths", shape.widths},
          {"steps_per_epoch", trainer.steps_per_epoch()},
          {"parameters", trainer.net().num_parameters()}};
}

ordered_json line_of(const train::LinetEpoch& epoch, const std::vector<std::string>& names,
                     double learning_rate) {
  ordered_json line{{"kind", name_of(run::LineKind::kEpochOfOne)},
                    {"epoch", epoch.epoch},
                    {"train_loss", epoch.trained.loss},
                    {"train_accuracy", epoch.trained.accuracy},
                    {"validation_loss", epoch.validated.loss},
                    {"validation_accuracy", epoch.validated.accuracy},
                    {"validation_mean_class_accuracy", epoch.validated.mean_class_accuracy},
                    {"gradient_norm", epoch.trained.gradient_norms.back()},
                    {"learning_rate", learning_rate},
                    {"balance", epoch.trained.balance},
                    {"non_finite", epoch.trained.non_finite},
                    {"skipped", epoch.trained.skipped},
                    {"loss_scale", epoch.trained.loss_scale},
                    {"norm_fallbacks",
                     std::reduce(epoch.trained.norm_fallbacks.begin(), epoch.trained.norm_fallbacks.end())},
                    {"best", epoch.is_best}};
  for (size_t stream = 0; stream < names.size(); ++stream) {
    ordered_json own{{"gradient_norm", epoch.trained.gradient_norms[stream]},
                     {"norm_fallbacks", epoch.trained.norm_fallbacks[stream]}};
    if (!epoch.trained.stream_accuracies.empty()) {
      own["train_loss"] = epoch.trained.stream_losses[stream];
      own["train_accuracy"] = epoch.trained.stream_accuracies[stream];
    }
    if (!epoch.validated.stream_accuracies.empty())
      own["validation_accuracy"] = epoch.validated.stream_accuracies[stream];
    if (!epoch.validated.shares.empty()) own["share"] = epoch.validated.shares[stream];
    own["frozen"] = std::ranges::find(epoch.frozen, static_cast<int64_t>(stream)) != epoch.frozen.end();
    line["streams"][names[stream]] = own;
  }
  line["time/captures"] = epoch.graphs.captures;
  line["time/capture_seconds"] = epoch.graphs.capture_seconds;
  line["time/eager_runs"] = epoch.graphs.eager;
  line["time/rank_bytes"] = epoch.bytes_between_ranks;
  line["seconds"] = epoch.seconds;
  return line;
}

ordered_json line_of(const LinetResult& result) {
  const train::LinetScore& whole = result.tested.whole;
  ordered_json line{{"kind", name_of(run::LineKind::kResult)},
                    {"test_loss", whole.loss},
                    {"test_accuracy", whole.accuracy},
                    {"test_mean_class_accuracy", whole.mean_class_accuracy},
                    {"best_epoch", result.best_epoch}};
  for (size_t stream = 0; stream < result.streams.size(); ++stream) {
    ordered_json own{{"share", whole.shares[stream]},
                     {"accuracy_without", result.tested.accuracy_without[stream]}};
    if (!whole.stream_accuracies.empty()) own["accuracy_alone"] = whole.stream_accuracies[stream];
    line["streams"][result.streams[stream]] = own;
  }
  line["classes"] = result.class_names;
  line["confusion"] = whole.confusion;
  line["seconds"] = result.seconds;
  return line;
}

// Which network it is, and what turns an image into its input and its output into a name: lists in JSON, by
// streams.
Metadata metadata_of(const train::LinetConfig& options, const data::ResidentDataset& dataset,
                     const train::LinetTrainer& trainer) {
  Metadata metadata{
      {"architecture", options.model},
      {"stream_names", fmt::format("{}", fmt::join(trainer.stream_names(), ","))},
      {"class_names",
       ordered_json(dataset.class_names).dump(-1, ' ', false, ordered_json::error_handler_t::replace)}};
  for (const data::ResidentField& field : dataset.train.fields) {
    if (!std::ranges::count(trainer.stream_names(), field.spec.name)) continue;
    metadata["mean." + field.spec.name] = ordered_json(field.statistics.mean).dump();
    metadata["std." + field.spec.name] = ordered_json(field.statistics.stddev).dump();
    metadata["full." + field.spec.name] = field.spec.type == data::SampleType::kU8 ? "255" : "65535";
    metadata["size." + field.spec.name] = fmt::format("{}x{}", field.spec.height, field.spec.width);
  }
  return metadata;
}

}  // namespace

LinetResult run_linet_job(const LinetJob& job, const LinetEvents& told, ranks::World& world) {
  const train::LinetConfig options = train::placed(train::checked_options(job.linet), world);
  const train::LinetConfig own_part = train::options_of_rank(options, world);
  const LinetEvents events = world.leads() ? told : LinetEvents{};
  run::Run run(job.run, "linet", job.recorded, events.run, world);
  const DeviceName name = choose_device(options.device);
  const JobScope scope(options, {torch_device(name)});

  const auto dataset =
      data::DatasetCache::instance().ensure(options.source, options.resident, name, events.progress);
  train::MemoryPlan plan =
      train::with_budget(train::linet_parts({.options = own_part,
                                             .fields = train::specs_of(dataset->train),
                                             .num_classes = dataset->num_classes(),
                                             .data = {dataset->bytes(), dataset->residency},
                                             .device = dataset->device,
                                             .ranks = world.size()}),
                         dataset->device, options.device_memory);
  if (plan.budget_bytes > 0 && dataset->residency == data::Residency::kDevice)
    plan.budget_bytes += dataset->bytes();  // it is there already
  train::check_fits(plan, "lower --batch or --width, or use --residency host");
  train::LinetTrainer trainer(options, dataset, name, world);
  LinetResult result{
      .streams = trainer.stream_names(), .class_names = dataset->class_names, .run_dir = run.path()};
  BestLinet best((run.path() / kBestLinet).string(), trainer, metadata_of(options, *dataset, trainer));
  run.begin({environment(options, *dataset, trainer, world), dataset_facts(*dataset),
             [&] { return batch_pictures(trainer.step().batch()); }, convolution_choices()},
            [&](run::StateArchive& archive) {
              trainer.visit_state(archive);
              best.visit_state(archive);
            });
  // Epochs that this run no longer has may have overwritten the file.
  if (world.leads() && best.epoch() > 0) best.write();
  trainer.at_every_batch([&] { run.at_batch(); });
  if (events.started) events.started(*dataset, trainer, run.path());

  const bool is_validated = dataset->validation.num_samples() > 0;
  const double none = std::numeric_limits<double>::quiet_NaN();
  const auto train_epoch = [&] {
    const train::LinetEpoch done = trainer.train_epoch(events.progress);
    const double score = is_validated ? done.validated.accuracy : none;
    if (done.is_best) best.take(done.epoch, score);
    if (done.is_best && world.leads()) best.write();
    const double share_of_peak = trainer.step().schedule().at(done.epoch * trainer.steps_per_epoch() - 1);
    ordered_json line = line_of(done, trainer.stream_names(), options.learning_rate * share_of_peak);
    if (!is_validated) clear_validation(line);
    run.write_metrics(line);
    if (!dataset->device.is_cpu()) write_convolutions(run);
    if (events.epoch_done) events.epoch_done(done);
    run.end_epoch(score);
  };
  run.guard([&] {
    while (!trainer.is_over()) train_epoch();
    run.save_last();
    best.put_back();
    trainer.share_network();
    result.best_epoch = best.epoch();
    result.tested = trainer.test(events.progress);
    result.seconds = run.seconds();
    run.write_metrics(line_of(result));
  });
  run.finish();
  return result;
}

void export_linet(const std::string& from, const std::string& to) {
  namespace fs = std::filesystem;
  const fs::path path(from);
  if (!fs::exists(path))
    fail_usage("linet export: '{}' is not there; want a run of train linet, or its {}", from, kBestLinet);
  if (const std::string job = fs::is_directory(path) ? run::job_of(path) : std::string();
      !job.empty() && job != "linet")
    fail_usage("linet export: '{}': {}; want a run of train linet", from, run::kind_text(job));
  const TensorFile file = read_tensors(fs::is_directory(path) ? (path / kBestLinet).string() : from);
  linet::Linet net(linet::shape_of(file), at::TensorOptions(at::kFloat), at::kFloat);
  linet::load_checkpoint(file, net);
  // All that is known of it but the tensors' own shapes, which the network says itself.
  linet::write_stream_weights(to, net, file.metadata);
}

}  // namespace espalier::jobs
