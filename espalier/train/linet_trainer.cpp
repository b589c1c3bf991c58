#include "espalier/train/linet_trainer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/core/interrupt.h"
#include "espalier/linet/linet_file.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/state_archive.h"

namespace espalier::train {
namespace {

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

std::vector<double> rate_factors(const std::string& text) {
  std::vector<double> factors;
  for (const std::string& part : split_commas(text)) {
    double factor = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), factor);
    if (error != std::errc() || stop != part.data() + part.size() || !std::isfinite(factor) || factor < 0)
      fail_usage("--rates '{}': want numbers of at least 0 with commas between, got '{}'", text, part);
    factors.push_back(factor);
  }
  return factors;
}

RateCurve curve_of(const std::string& schedule) {
  if (schedule == "cosine") return RateCurve::kCosine;
  return schedule == "constant" ? RateCurve::kConstant : RateCurve::kLinear;
}

data::PlanOptions plan_of(const LinetOptions& options, const DeviceName& device) {
  return {.kind = data::PlanKind::kOwn,
          .n_envs = 1,
          .batch_size_per_env = options.batch,
          .env_devices = {device.text()},
          .seed = options.seed};
}

data::IteratorOptions training_plan(const LinetOptions& options, const DeviceName& device,
                                    at::ScalarType type) {
  auto training = data::IteratorOptions::training(plan_of(options, device), type);
  training.augmentation.crop_pad = static_cast<int32_t>(options.crop_pad);
  training.augmentation.flip = options.flip;
  return training;
}

LinetStepOptions step_options(const LinetOptions& options, int64_t steps_per_epoch, at::ScalarType compute,
                              const data::ResidentDataset& dataset) {
  if (steps_per_epoch == 0)
    fail_usage(
        "--batch {} is larger than the training split of {} samples: nothing would be trained; lower it, or "
        "--validation",
        options.batch, dataset.train.num_samples());
  const int64_t num_steps = steps_per_epoch * options.epochs;
  return {
      .optimizer = options.optimizer == "sgd" ? OptimizerKind::kSgd : OptimizerKind::kAdamW,
      .learning_rate = options.learning_rate,
      .rate_factors = rate_factors(options.rates),
      .schedule = RateSchedule(curve_of(options.schedule), num_steps,
                               options.warm_up * static_cast<double>(num_steps)),
      .momentum = options.momentum,
      .weight_decay = options.weight_decay,
      .label_smoothing = options.label_smoothing,
      .clip_norm = options.clip,
      .dropout = options.dropout,
      .blanking = {.largest = options.modality_dropout,
                   .ramp_steps = std::llround(options.modality_ramp * static_cast<double>(steps_per_epoch))},
      .balance = options.balance,
      .balance_layer = options.balance_layer == "all" ? std::string() : options.balance_layer,
      .seed = options.seed,
      .steps_per_epoch = steps_per_epoch,
      .compute = compute,
      .format = dataset.format,
      .graphs = {.device = dataset.device, .graphs = options.graphs ? Graphs::kOn : Graphs::kOff}};
}

LinetEvaluation::Tick tick_of(const Progress& progress, const std::string& title) {
  if (!progress) return {};
  return [&progress, title](int64_t done, int64_t total) { progress(title, done, total); };
}

}  // namespace

at::ScalarType compute_type(const std::string& amp, at::Device device) {
  if (amp == "bfloat16" || (amp == "auto" && device.is_cuda())) return at::kBFloat16;
  return amp == "float16" ? at::kHalf : at::kFloat;
}

std::vector<size_t> stream_fields(const LinetOptions& options, const std::vector<data::FieldSpec>& fields) {
  std::vector<std::string> names;
  for (const data::FieldSpec& field : fields) names.push_back(field.name);
  std::vector<size_t> chosen;
  for (const std::string& name : options.streams.empty() ? names : split_commas(options.streams)) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      fail_usage("--streams '{}': the data has no field '{}', only {}", options.streams, name,
                 fmt::join(names, ", "));
    chosen.push_back(static_cast<size_t>(found - names.begin()));
  }
  for (const size_t field : chosen)
    if (fields[field].height != fields[chosen[0]].height || fields[field].width != fields[chosen[0]].width)
      fail_usage("--streams: want fields of one size, got '{}' of {} x {} and '{}' of {} x {}",
                 names[chosen[0]], fields[chosen[0]].height, fields[chosen[0]].width, names[field],
                 fields[field].height, fields[field].width);
  return chosen;
}

linet::LinetShape linet_shape(const LinetOptions& options, const std::vector<data::FieldSpec>& fields,
                              int64_t num_classes, at::Device device) {
  const double width = options.width > 0 ? options.width : device.is_cpu() ? 0.25 : 1;
  linet::LinetShape shape = linet::linet_preset(options.model, width);
  shape.in_channels.clear();
  for (const size_t field : stream_fields(options, fields))
    shape.in_channels.push_back(fields[field].channels);
  shape.num_classes = num_classes;
  shape.memory_format = options.resident.format();
  shape.seed = options.seed;
  return shape;
}

LinetTrainer::LinetTrainer(const LinetOptions& options, std::shared_ptr<const data::ResidentDataset> dataset,
                           const DeviceName& device)
    : options_(options),
      dataset_(std::move(dataset)),
      compute_(compute_type(options.amp, dataset_->device)),
      fields_(stream_fields(options, specs_of(dataset_->train))),
      train_(training_plan(options, device, compute_), {dataset_}, data::Split::kTrain),
      validate_(data::IteratorOptions::evaluation(plan_of(options, device), compute_), {dataset_},
                data::Split::kValidation),
      test_(data::IteratorOptions::evaluation(plan_of(options, device), compute_), {dataset_},
            data::Split::kTest) {
  for (const size_t field : fields_) names_.push_back(dataset_->train.fields[field].spec.name);
  const at::TensorOptions tensors = at::TensorOptions(at::kFloat).device(dataset_->device);
  const linet::LinetShape shape =
      linet_shape(options, specs_of(dataset_->train), dataset_->num_classes(), dataset_->device);
  net_ = std::make_unique<linet::Linet>(shape, tensors, compute_);
  if (!options.weights.empty()) linet::load_stream_weights(lanes::read_tensors(options.weights), *net_);
  if (options.monitor) monitor_ = std::make_unique<linet::StreamMonitor>(shape, tensors);
  if (options.stream_patience > 0 && !options.monitor)
    fail_usage("--stream-patience {}: wants the streams' heads: leave out --no-monitor",
               options.stream_patience);
  step_ = std::make_unique<LinetStep>(*net_, monitor_.get(), train_.gather_call(0), fields_,
                                      step_options(options, train_.length(), compute_, *dataset_));
  validation_ = evaluation(validate_, step_->graphs().is_capturing() ? Graphs::kOn : Graphs::kOff);
  stream_best_.resize(fields_.size());
}

std::unique_ptr<LinetEvaluation> LinetTrainer::evaluation(const data::GatherIterator& split, Graphs graphs) {
  return std::make_unique<LinetEvaluation>(
      *net_, monitor_.get(), split.gather_call(0), fields_, split.length(), compute_, dataset_->format,
      StepGraphs::Options{.device = dataset_->device, .graphs = graphs, .pool = step_->graphs().pool()});
}

LinetEpoch LinetTrainer::train_epoch(const Progress& progress) {
  const auto began = std::chrono::steady_clock::now();
  const auto captures = [&] { return step_->graphs().num_captures() + validation_->graphs().num_captures(); };
  const auto capture_seconds = [&] {
    return step_->graphs().capture_seconds() + validation_->graphs().capture_seconds();
  };
  LinetEpoch epoch{.epoch = epoch_ + 1, .num_captures = -captures(), .capture_seconds = -capture_seconds()};
  const std::string title = fmt::format("epoch {}/{}", epoch.epoch, options_.epochs);
  if (!is_under_way_) step_->begin_epoch(epoch_);
  if (!is_under_way_) batches_done_ = 0;
  is_under_way_ = true;
  while (batches_done_ < steps_per_epoch()) {
    throw_if_interrupted();
    step_->run();
    batches_done_ += 1;
    if (at_batch_) at_batch_();
    if (progress) progress(title, batches_done_, steps_per_epoch());
  }
  // Batches moved the running statistics of frozen streams too.
  for (size_t stream = 0; stream < stream_best_.size(); ++stream)
    if (stream_best_[stream].is_frozen)
      for (const auto& [name, buffer] : running_statistics(stream)) buffer.copy_(frozen_statistics_.at(name));
  epoch.trained = step_->metrics();
  if (epoch.trained.non_finite == steps_per_epoch())
    fail("in epoch {} the loss of every step was not finite; lower --learning-rate {}, or set --clip",
         epoch.epoch, options_.learning_rate);
  if (validate_.length() > 0)
    epoch.validated = validation_->score({}, tick_of(progress, title + ", validation"));
  epoch_ += 1;
  is_under_way_ = false;
  settle(epoch);
  epoch.num_captures += captures();
  epoch.capture_seconds += capture_seconds();
  epoch.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return epoch;
}

std::map<std::string, at::Tensor> LinetTrainer::running_statistics(size_t stream) {
  std::map<std::string, at::Tensor> own;
  for (const linet::StreamTensor& tensor : net_->stream_tensors())
    if (tensor.name.find(fmt::format(".streams.{}.running_", stream)) != std::string::npos)
      own[tensor.name] = tensor.value();
  return own;
}

bool LinetTrainer::is_over() const {
  return epoch_ >= options_.epochs || (options_.patience > 0 && best_.epochs_since >= options_.patience);
}

void LinetTrainer::visit_state(StateArchive& archive) {
  archive.value("epoch", epoch_);
  archive.value("is_under_way", is_under_way_);
  archive.value("batches_done", batches_done_);
  const auto visit_best = [&](Best& best) {
    archive.value("accuracy", best.accuracy);
    archive.value("epochs_since", best.epochs_since);
    archive.value("is_frozen", best.is_frozen);
  };
  archive.part("best", [&] { visit_best(best_); });
  for (size_t stream = 0; stream < stream_best_.size(); ++stream)
    archive.part("best_" + names_[stream], [&] { visit_best(stream_best_[stream]); });
  step_->visit_state(archive);
  for (size_t stream = 0; stream < stream_best_.size(); ++stream)
    if (stream_best_[stream].is_frozen)
      for (const auto& [name, buffer] : running_statistics(stream))
        archive.any_tensor("frozen." + name, frozen_statistics_[name], dataset_->device);
}

void LinetTrainer::settle(LinetEpoch& epoch) {
  const bool has_validation = validate_.length() > 0;
  const auto improves = [](Best& best, double accuracy) {
    const bool is_better = accuracy > best.accuracy;
    if (is_better) best.accuracy = accuracy;
    best.epochs_since = is_better ? 0 : best.epochs_since + 1;
    return is_better;
  };
  epoch.is_best = improves(best_, has_validation ? epoch.validated.accuracy : epoch.trained.accuracy);
  epoch.is_last = options_.patience > 0 && best_.epochs_since >= options_.patience;
  if (!monitor_) return;
  const std::vector<double>& own =
      has_validation ? epoch.validated.stream_accuracies : epoch.trained.stream_accuracies;
  for (size_t stream = 0; stream < own.size(); ++stream) {
    Best& best = stream_best_[stream];
    improves(best, own[stream]);
    if (options_.stream_patience == 0 || best.is_frozen || best.epochs_since < options_.stream_patience)
      continue;
    best.is_frozen = true;
    step_->freeze(static_cast<int64_t>(stream));
    for (const auto& [name, buffer] : running_statistics(stream)) frozen_statistics_[name] = buffer.clone();
    epoch.frozen.push_back(static_cast<int64_t>(stream));
  }
}

LinetTest LinetTrainer::test(const Progress& progress) {
  const auto all = evaluation(test_, Graphs::kOff);  // once: nothing to replay
  LinetTest test{.whole = all->score({}, tick_of(progress, "test"))};
  for (size_t stream = 0; stream < names_.size(); ++stream)
    test.accuracy_without.push_back(
        all->score(static_cast<int64_t>(stream), tick_of(progress, "test without " + names_[stream]))
            .accuracy);
  return test;
}

}  // namespace espalier::train
