#include "espalier/train/linet_job.h"

#include <ATen/Parallel.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "espalier/core/device_memory.h"
#include "espalier/data/cache.h"
#include "espalier/lanes/conv_choice.h"
#include "espalier/linet/linet_file.h"
#include "espalier/train/deterministic_scope.h"
#include "espalier/train/linet_memory.h"
#include "espalier/train/memory_plan.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/run.h"

namespace espalier::train {
namespace {

using nlohmann::ordered_json;

ordered_json environment(const LinetOptions& options, const data::ResidentDataset& dataset,
                         LinetTrainer& trainer) {
  const linet::LinetShape& shape = trainer.net().shape();
  return {{"device", dataset.device.str()},
          {"precision", trainer.compute() == at::kFloat  ? "fp32"
                        : trainer.compute() == at::kHalf ? "fp16"
                                                         : "bf16"},
          {"threads", at::get_num_threads()},
          {"deterministic", options.deterministic},
          {"graphs", trainer.step().graphs().is_capturing()},
          {"memory_format", dataset.format == MemoryFormat::kChannelsLast ? "channels_last" : "contiguous"},
          {"streams", trainer.stream_names()},
          {"widths", shape.widths},
          {"steps_per_epoch", trainer.steps_per_epoch()},
          {"parameters", trainer.net().num_parameters()}};
}

ordered_json line_of(const LinetEpoch& epoch, const std::vector<std::string>& names) {
  ordered_json line{{"kind", "epoch"},
                    {"epoch", epoch.epoch},
                    {"train_loss", epoch.trained.loss},
                    {"train_accuracy", epoch.trained.accuracy},
                    {"validation_loss", epoch.validated.loss},
                    {"validation_accuracy", epoch.validated.accuracy},
                    {"validation_mean_class_accuracy", epoch.validated.mean_class_accuracy},
                    {"gradient_norm", epoch.trained.gradient_norms.back()},
                    {"balance", epoch.trained.balance},
                    {"non_finite", epoch.trained.non_finite},
                    {"skipped", epoch.trained.skipped},
                    {"loss_scale", epoch.trained.loss_scale},
                    {"best", epoch.is_best}};
  for (size_t stream = 0; stream < names.size(); ++stream) {
    ordered_json own{{"gradient_norm", epoch.trained.gradient_norms[stream]}};
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
  line["time/captures"] = epoch.num_captures;
  line["time/capture_seconds"] = epoch.capture_seconds;
  line["seconds"] = epoch.seconds;
  return line;
}

ordered_json line_of(const LinetResult& result) {
  const LinetScore& whole = result.tested.whole;
  ordered_json line{{"kind", "result"},
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

void save_best(const std::string& path, LinetTrainer& trainer, const LinetEpoch& epoch) {
  linet::NamedTensors heads;
  if (trainer.monitor())
    for (const lanes::NamedParameter& named : trainer.monitor()->parameters())
      heads.emplace_back(named.name, named.parameter->storage());
  std::string names;
  for (const std::string& name : trainer.stream_names()) names += (names.empty() ? "" : ",") + name;
  linet::write_checkpoint(path, trainer.net(), heads,
                          {{"epoch", std::to_string(epoch.epoch)},
                           {"stream_names", names},
                           {"validation_accuracy", std::to_string(epoch.validated.accuracy)}});
}

// Heads and network as they were in the best epoch.
void load_best(const std::string& path, LinetTrainer& trainer) {
  const lanes::TensorFile file = lanes::read_tensors(path);
  linet::load_checkpoint(file, trainer.net());
  if (!trainer.monitor()) return;
  for (const lanes::NamedParameter& named : trainer.monitor()->parameters()) {
    named.parameter->storage().copy_(file.at(named.name));
    named.parameter->refresh();
  }
}

}  // namespace

LinetResult run_linet_job(const LinetOptions& options, const LinetEvents& events) {
  using Clock = std::chrono::steady_clock;
  const auto began = Clock::now();
  Run run(options, "linet", to_json(options), events.run);
  const DeviceName name = data::choose_device(options.device);
  claim_device(data::torch_device(name), options.device_memory);
  const DeterministicScope deterministic(options.deterministic);
  repeat_convolutions(options.convolutions);

  const auto dataset =
      data::DatasetCache::instance().ensure(options.source, options.resident, name, events.progress);
  const int64_t on_device = dataset->residency == data::Residency::kDevice ? dataset->bytes() : 0;
  MemoryPlan plan = plan_linet(options, on_device, specs_of(dataset->train), dataset->num_classes());
  if (plan.budget_bytes > 0) plan.budget_bytes += on_device;  // it is there already
  check_fits(plan, "lower --batch or --width, or use --residency host");
  LinetTrainer trainer(options, dataset, name);
  LinetResult result{
      .streams = trainer.stream_names(), .class_names = dataset->class_names, .run_dir = run.path()};
  run.begin({environment(options, *dataset, trainer), dataset_facts(*dataset),
             [&] { return batch_pictures(trainer.step().batch()); }},
            [&](StateArchive& archive) {
              trainer.visit_state(archive);
              archive.value("best_epoch", result.best_epoch);
            });
  trainer.at_every_batch([&] { run.at_batch(); });
  if (events.started) events.started(*dataset, trainer, run.path());

  const std::string best = (run.path() / kBestLinet).string();
  const auto train_epoch = [&] {
    const LinetEpoch done = trainer.train_epoch(events.progress);
    if (done.is_best) {
      save_best(best, trainer, done);
      result.best_epoch = done.epoch;
    }
    run.set_score(done.validated.accuracy);
    run.write_metrics(line_of(done, trainer.stream_names()));
    if (!dataset->device.is_cpu())
      run.write_file("convolutions.json", nlohmann::json(lanes::conv_choices()).dump(2) + "\n");
    if (events.epoch_done) events.epoch_done(done);
  };
  run.guard([&] {
    while (!trainer.is_over()) train_epoch();
    run.save_last();
    load_best(best, trainer);
    result.tested = trainer.test(events.progress);
    result.seconds = std::chrono::duration<double>(Clock::now() - began).count();
    run.write_metrics(line_of(result));
  });
  run.finish();
  return result;
}

void export_linet(const std::string& from, const std::string& to) {
  const std::filesystem::path path(from);
  const lanes::TensorFile file =
      lanes::read_tensors(std::filesystem::is_directory(path) ? (path / kBestLinet).string() : from);
  linet::Linet net(linet::shape_of(file), at::TensorOptions(at::kFloat), at::kFloat);
  linet::load_checkpoint(file, net);
  Metadata metadata;
  for (const char* key : {"epoch", "stream_names", "validation_accuracy"})
    if (const auto found = file.metadata.find(key); found != file.metadata.end())
      metadata[key] = found->second;
  linet::write_stream_weights(to, net, metadata);
}

}  // namespace espalier::train
