#include "espalier/train/host_job.h"

#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "espalier/core/device_memory.h"
#include "espalier/core/error.h"
#include "espalier/core/interrupt.h"
#include "espalier/data/cache.h"
#include "espalier/data/iterator.h"
#include "espalier/train/host_network.h"
#include "espalier/train/run_directory.h"

namespace espalier::train {
namespace {

using data::GatherIterator;
using data::IteratorOptions;

constexpr int64_t kRingCapacity = 3;

data::PlanOptions one_lane(const HostJobOptions& options, const DeviceName& device) {
  return {.kind = data::PlanKind::kSplit,
          .n_envs = 1,
          .batch_size_per_env = options.batch,
          .env_devices = {device.text()},
          .seed = options.seed};
}

size_t field_index(const HostJobOptions& options, const data::ResidentSplit& split) {
  std::string names;
  for (size_t f = 0; f < split.fields.size(); ++f) {
    const std::string& name = split.fields[f].spec.name;
    if (name == options.field || (options.field.empty() && split.fields.size() == 1)) return f;
    names += (names.empty() ? "" : ", ") + name;
  }
  if (options.field.empty()) fail_usage("this data has several fields: choose one with --field: {}", names);
  fail_usage("--field '{}': want one of {}", options.field, names);
}

// Rises linearly over the first fifth of the steps, then falls linearly to 0.
double learning_rate_at(const HostJobOptions& options, int64_t step, int64_t num_steps) {
  const double peak = 0.2 * static_cast<double>(num_steps);
  const double at = static_cast<double>(step) + 0.5;
  const double share =
      at < peak ? at / peak : (static_cast<double>(num_steps) - at) / (static_cast<double>(num_steps) - peak);
  return options.learning_rate * share;
}

// Sums of loss and hits, kept on the device and read once.
class Score {
 public:
  explicit Score(c10::Device device) : sums_(at::zeros({2}, at::TensorOptions(at::kDouble).device(device))) {}

  // logits [B,classes], labels [B] i64 (-100: not a sample), loss: mean over the samples.
  void add(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& loss, int64_t count) {
    sums_[0].add_(loss.detach().to(at::kDouble), static_cast<double>(count));
    sums_[1].add_(logits.detach().argmax(1).eq(labels).sum());
    count_ += count;
  }

  struct Means {
    double loss = 0;
    double accuracy = 0;
  };
  Means read() const {
    if (count_ == 0) return {};
    const at::Tensor sums = sums_.to(at::kCPU) / static_cast<double>(count_);
    return {sums[0].item<double>(), sums[1].item<double>()};
  }

 private:
  at::Tensor sums_;  // [2] f64 device: loss, hits
  int64_t count_ = 0;
};

Score::Means evaluate(HostNetwork& network, GatherIterator& iterator, size_t field, c10::Device device) {
  const torch::NoGradGuard no_grad;
  network.eval();
  Score score(device);
  iterator.begin_epoch(0);
  while (auto batches = iterator.eval_stacked()) {
    throw_if_interrupted();
    const data::StackedBatch& batch = batches->front();
    const at::Tensor labels = batch.labels[0];
    const at::Tensor logits = network.forward(batch.fields[field][0]);
    score.add(logits, labels, torch::nn::functional::cross_entropy(logits, labels), batch.counts[0]);
  }
  network.train();
  return score.read();
}

}  // namespace

MemoryPlan plan_host_job(const HostJobOptions& options, int64_t data_bytes, const data::FieldSpec& field) {
  const DeviceName name = data::choose_device(options.device);
  const data::RingOptions ring{.capacity = kRingCapacity,
                               .batch = options.batch,
                               .image_sizes = {{field.channels, field.height, field.width}}};
  // Three blocks of 32, 64, 128 channels at 1, 1/4, 1/16 of the pixels; convolution, norm and ReLU in place,
  // pool, and the gradients of two of them at the widest point.
  const int64_t pixels = field.height * field.width;
  const int64_t activations = options.batch * pixels * (32 + 64 / 4 + 128 / 16) * 4 * 4;
  const int64_t weights = (9 * (field.channels * 32 + 32 * 64 + 64 * 128) + 128 * 100) * 4;
  const c10::Device device = data::torch_device(name);
  const int64_t context = device.is_cpu() ? 0 : measure_cuda_context(device.index());
  return {.parts = {{"data", data_bytes},
                    {"batch rings", 3 * ring_bytes(ring)},
                    {"weights, gradients and momentum", 3 * weights},
                    {"activations", activations}},
          .context_bytes = context,
          .budget_bytes = device_budget(device, options.device_memory)};
}

HostJobResult run_host_job(const HostJobOptions& options, const HostJobEvents& events) {
  using Clock = std::chrono::steady_clock;
  const auto seconds_since = [](Clock::time_point from) {
    return std::chrono::duration<double>(Clock::now() - from).count();
  };
  const auto began = Clock::now();
  const DeviceName name = data::choose_device(options.device);
  const c10::Device device = data::torch_device(name);
  if (!device.is_cpu()) measure_cuda_context(device.index());  // before anything starts CUDA
  cap_device_memory(device, options.device_memory);

  const auto dataset =
      data::DatasetCache::instance().ensure(options.source, options.resident, name, events.progress);
  const size_t field = field_index(options, dataset->train);
  const data::FieldSpec& spec = dataset->train.fields[field].spec;
  const int64_t on_device = dataset->residency == data::Residency::kDevice ? dataset->bytes() : 0;
  MemoryPlan plan = plan_host_job(options, on_device, spec);
  if (plan.budget_bytes > 0) plan.budget_bytes += on_device;  // it is there already
  check_fits(plan, "lower --batch, or use --residency host");

  auto training = IteratorOptions::training(one_lane(options, name), at::kFloat);
  training.augmentation.crop_pad = static_cast<int32_t>(options.crop_pad);
  training.augmentation.flip = options.flip;
  training.ring_capacity = kRingCapacity;
  const auto evaluation = IteratorOptions::evaluation(one_lane(options, name), at::kFloat);
  GatherIterator train(training, {dataset}, data::Split::kTrain);
  GatherIterator validation(evaluation, {dataset}, data::Split::kValidation);
  GatherIterator test(evaluation, {dataset}, data::Split::kTest);
  if (train.length() == 0)
    fail_usage(
        "--batch {} is larger than the training split of {} samples: nothing would be trained; lower it, or "
        "--validation",
        options.batch, dataset->train.num_samples());

  RunDirectory run("host", options.run_dir, config_text(options));
  if (events.started) events.started(*dataset, plan, run.path());

  torch::manual_seed(options.seed);
  HostNetwork network(spec.channels, spec.height, spec.width, dataset->num_classes(), dataset->format);
  network.to(device);
  torch::optim::SGD optimiser(network.parameters(), torch::optim::SGDOptions(options.learning_rate)
                                                        .momentum(options.momentum)
                                                        .nesterov(options.momentum > 0)
                                                        .weight_decay(options.weight_decay));
  const int64_t num_steps = options.epochs * train.length();
  int64_t step = 0;
  for (int64_t epoch = 1; epoch <= options.epochs; ++epoch) {
    const auto epoch_began = Clock::now();
    const std::string title = fmt::format("epoch {}/{}", epoch, options.epochs);
    Score score(device);
    train.begin_epoch(static_cast<uint64_t>(epoch - 1));
    while (auto batches = train.next_stacked()) {
      throw_if_interrupted();
      const data::StackedBatch& batch = batches->front();
      const double learning_rate = learning_rate_at(options, step++, num_steps);
      for (auto& group : optimiser.param_groups())
        static_cast<torch::optim::SGDOptions&>(group.options()).lr(learning_rate);
      const at::Tensor labels = batch.labels[0];
      const at::Tensor logits = network.forward(batch.fields[field][0]);
      const at::Tensor loss = torch::nn::functional::cross_entropy(logits, labels);
      optimiser.zero_grad();
      loss.backward();
      optimiser.step();
      score.add(logits, labels, loss, batch.counts[0]);
      if (events.progress) events.progress(title, train.state().batch, train.length());
    }
    const auto trained = score.read();
    const auto validated = evaluate(network, validation, field, device);
    const EpochRecord record{.epoch = epoch,
                             .train_loss = trained.loss,
                             .train_accuracy = trained.accuracy,
                             .validation_loss = validated.loss,
                             .validation_accuracy = validated.accuracy,
                             .seconds = seconds_since(epoch_began)};
    run.write_metrics({{"epoch", record.epoch},
                       {"train_loss", record.train_loss},
                       {"train_accuracy", record.train_accuracy},
                       {"validation_loss", record.validation_loss},
                       {"validation_accuracy", record.validation_accuracy},
                       {"seconds", record.seconds}});
    if (events.epoch_done) events.epoch_done(record);
  }
  const auto tested = evaluate(network, test, field, device);
  const HostJobResult result{.test_loss = tested.loss,
                             .test_accuracy = tested.accuracy,
                             .seconds = seconds_since(began),
                             .run_dir = run.path()};
  run.write_metrics({{"test_loss", result.test_loss},
                     {"test_accuracy", result.test_accuracy},
                     {"seconds", result.seconds}});
  return result;
}

}  // namespace espalier::train
