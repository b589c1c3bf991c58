#include "espalier/train/linet/trainer.h"

#include <ATen/ops/empty_like.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/core/text/list.h"
#include "espalier/linet/file.h"
#include "espalier/run/archive.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/step/data_parallel.h"

namespace espalier::train {
namespace {

using linet::LinetRules;

// By the original's rules a stream is better only where its accuracy is, by more than this.
constexpr double kStreamMargin = 0.001;

data::PlanOptions plan_of(const LinetConfig& options, const DeviceName& device) {
  return {.kind = data::PlanKind::kOwn,
          .n_envs = 1,
          .batch_size_per_env = options.batch,
          .env_devices = {device.text()},
          .seed = options.seed};
}

data::IteratorOptions training_plan(const LinetConfig& options, const DeviceName& device,
                                    at::ScalarType type) {
  auto training = data::IteratorOptions::training(plan_of(options, device), type);
  training.augmentation.crop_pad = static_cast<int32_t>(options.crop_pad);
  training.augmentation.flip = options.flip;
  return training;
}

// What names of the layers begin with; empty: any.
std::string prefix_of(BalanceLayer layer) {
  switch (layer) {
    case BalanceLayer::kConv1:
      return "conv1";
    case BalanceLayer::kLayer1:
      return "layer1";
    case BalanceLayer::kLayer2:
      return "layer2";
    case BalanceLayer::kLayer3:
      return "layer3";
    case BalanceLayer::kLayer4:
      return "layer4";
    default:
      return "";
  }
}

LinetStepOptions step_options(const LinetConfig& options, int64_t steps_per_epoch, at::ScalarType compute,
                              const data::ResidentDataset& dataset, ranks::World& world) {
  if (steps_per_epoch == 0)
    fail_usage(
        "--batch {} is larger than the training split of {} samples: nothing would be trained; lower it, or "
        "--validation",
        options.batch, dataset.train.num_samples());
  const int64_t num_steps = steps_per_epoch * options.epochs;
  return {
      .optimizer = options.optimizer,
      .learning_rate = options.learning_rate,
      .rate_factors = options.rates,
      .schedule = RateSchedule(options.schedule, num_steps, options.warm_up * static_cast<double>(num_steps)),
      .momentum = options.momentum,
      .weight_decay = options.weight_decay,
      .label_smoothing = options.label_smoothing,
      .clip_norm = options.clip,
      .dropout = options.dropout,
      .rules = options.rules,
      .blanking = {.largest = options.modality_dropout,
                   .start_epoch = options.modality_start,
                   .ramp_epochs = options.modality_ramp,
                   .steps_per_epoch = steps_per_epoch},
      .balance = options.balance,
      .balance_layer = prefix_of(options.balance_layer),
      .seed = options.seed,
      .steps_per_epoch = steps_per_epoch,
      .compute = compute,
      .format = dataset.format,
      // Between ranks a step waits for others, which a graph cannot.
      .graphs = {.device = dataset.device,
                 .graphs = options.graphs && world.is_alone() ? Graphs::kOn : Graphs::kOff},
      .world = &world,
      .sync_norm = options.sync_norm};
}

LinetEvaluation::Tick tick_of(const Progress& progress, const std::string& title) {
  if (!progress) return {};
  return [&progress, title](int64_t done, int64_t total) { progress(title, done, total); };
}

}  // namespace

BestSoFar BestSoFar::for_stream(LinetRules rules) {
  return {.accuracy = rules == LinetRules::kOriginal ? 0.0 : -1.0};
}

bool BestSoFar::takes(double now, double margin) {
  const bool is_better = now > accuracy + margin;
  if (is_better) accuracy = now;
  epochs_since = is_better ? 0 : epochs_since + 1;
  return is_better;
}

bool BestSoFar::takes_stream(double now, LinetRules rules) {
  return takes(now, rules == LinetRules::kOriginal ? kStreamMargin : 0);
}

// The original's patience is exceeded, ours is used up.
bool BestSoFar::is_out_of_patience(int64_t patience, LinetRules rules) const {
  return rules == LinetRules::kOriginal ? epochs_since > patience : epochs_since >= patience;
}

std::vector<size_t> stream_fields(const LinetConfig& options, const std::vector<data::FieldSpec>& fields) {
  std::vector<std::string> names;
  for (const data::FieldSpec& field : fields) names.push_back(field.name);
  std::vector<size_t> chosen;
  for (const std::string& name : options.streams.empty() ? names : options.streams) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      fail_usage("--streams '{}': the data has no field '{}', only {}", fmt::join(options.streams, ","), name,
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

LinetConfig checked_options(LinetConfig options) {
  const bool is_original = options.rules == LinetRules::kOriginal;
  if (!options.streams.empty()) split_names("--streams", fmt::format("{}", fmt::join(options.streams, ",")));
  if (options.stream_patience > 0 && !options.monitor)
    fail_usage("--stream-patience {}: wants the streams' heads: leave out --no-monitor",
               options.stream_patience);
  if (!is_original && options.modality_start > 0)
    fail_usage(
        "--modality-start {}: the rules espalier have no start epoch; leave it out, or use --linet-rules "
        "original",
        options.modality_start);
  if (options.balance_layer == BalanceLayer::kAuto)
    options.balance_layer = is_original ? BalanceLayer::kLayer4 : BalanceLayer::kAll;
  return options;
}

LinetConfig placed(LinetConfig options, const ranks::World& world) {
  const int gpus = num_cuda_devices();
  if (!world.is_alone() && !options.device && gpus > 0)
    options.device = DeviceName{DeviceName::Kind::kCuda, static_cast<int>(world.local_rank() % gpus)};
  return options;
}

LinetConfig options_of_rank(LinetConfig options, const ranks::World& world) {
  options.batch = part_of_batch(options.batch, world);
  return options;
}

linet::LinetShape linet_shape(const LinetConfig& options, const std::vector<data::FieldSpec>& fields,
                              int64_t num_classes, at::Device device) {
  const double width = options.width > 0 ? options.width : device.is_cpu() ? 0.25 : 1;
  linet::LinetShape shape = linet::linet_preset(options.model, width, options.rules);
  shape.in_channels.clear();
  for (const size_t field : stream_fields(options, fields))
    shape.in_channels.push_back(fields[field].channels);
  if (options.rules == LinetRules::kOriginal && shape.num_streams() < 2)
    for (const auto& [flag, value] :
         {std::pair{"--modality-dropout", options.modality_dropout}, std::pair{"--balance", options.balance}})
      if (value > 0)
        fail_usage("{} {}: wants at least two streams, got one; leave it out, or name another in --streams",
                   flag, value);
  shape.num_classes = num_classes;
  shape.memory_format = options.resident.memory_format;
  shape.seed = options.seed;
  return shape;
}

LinetTrainer::LinetTrainer(const LinetConfig& options, std::shared_ptr<const data::ResidentDataset> dataset,
                           const DeviceName& device, ranks::World& world)
    : world_(world),
      options_(checked_options(options)),
      dataset_(std::move(dataset)),
      compute_(precision_type(options.precision, dataset_->device)),
      fields_(stream_fields(options, specs_of(dataset_->train))),
      train_(training_plan(options_of_rank(options, world), device, compute_), {dataset_},
             data::Split::kTrain),
      validate_(data::IteratorOptions::evaluation(plan_of(options_of_rank(options, world), device), compute_),
                {dataset_}, data::Split::kValidation),
      test_(data::IteratorOptions::evaluation(plan_of(options_of_rank(options, world), device), compute_),
            {dataset_}, data::Split::kTest) {
  for (const size_t field : fields_) names_.push_back(dataset_->train.fields[field].spec.name);
  const at::TensorOptions tensors = at::TensorOptions(at::kFloat).device(dataset_->device);
  const linet::LinetShape shape =
      linet_shape(options, specs_of(dataset_->train), dataset_->num_classes(), dataset_->device);
  const data::FieldSpec& field = dataset_->train.fields[fields_[0]].spec;
  // What a norm sees: the whole batch, or each rank's part by itself.
  linet::Linet::check_training(
      shape, options.sync_norm ? options.batch : options_of_rank(options, world).batch, field.height,
      field.width, world.is_alone() || options.sync_norm ? "--batch" : "--batch, of which a rank has");
  net_ = std::make_unique<linet::Linet>(shape, tensors, compute_);
  if (!options.weights.empty()) linet::load_stream_weights(read_tensors(options.weights), *net_);
  if (options.monitor) monitor_ = std::make_unique<linet::StreamMonitor>(shape, tensors);
  step_ = std::make_unique<LinetStep>(*net_, monitor_.get(), train_.gather_call(0), fields_,
                                      step_options(options_, steps_per_epoch(), compute_, *dataset_, world));
  validation_ = evaluation(validate_, step_->graphs().is_capturing() ? Graphs::kOn : Graphs::kOff);
  stream_best_.resize(fields_.size(), BestSoFar::for_stream(options_.rules));
  kept_.resize(fields_.size());
  share_network();  // another kind of processor may have drawn other bits
}

void LinetTrainer::share_network() {
  std::vector<lanes::NamedParameter> parameters = net_->parameters();
  if (monitor_) lanes::append_parameters(parameters, "", monitor_->parameters());
  std::vector<at::Tensor> buffers;
  for (const auto& [name, buffer] : net_->named_buffers()) buffers.push_back(buffer);
  train::share_network(world_, parameters, buffers);
}

std::unique_ptr<LinetEvaluation> LinetTrainer::evaluation(const data::GatherIterator& split, Graphs graphs) {
  return std::make_unique<LinetEvaluation>(
      *net_, monitor_.get(), split.gather_call(0), fields_, split.length(), compute_, dataset_->format,
      StepGraphs::Options{.device = dataset_->device, .graphs = graphs, .pool = step_->graphs().pool()},
      world_);
}

LinetEpoch LinetTrainer::train_epoch(const Progress& progress) {
  const auto began = std::chrono::steady_clock::now();
  const int64_t bytes_before = world_.bytes_moved();
  const auto graph_work = [&] {
    GraphWork all = step_->graphs().work();
    all += validation_->graphs().work();
    return all;
  };
  const GraphWork work_before = graph_work();
  LinetEpoch epoch{.epoch = epoch_ + 1};
  const std::string title = fmt::format("epoch {}/{}", epoch.epoch, options_.epochs);
  if (!is_under_way_) {
    // Only now: what was validated, scored and saved after the epoch before was one network.
    for (size_t stream = 0; stream < stream_best_.size(); ++stream)
      if (stream_best_[stream].is_frozen) put_back(stream);
    step_->begin_epoch(epoch_);
    batches_done_ = 0;
  }
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
    if (stream_best_[stream].is_frozen) put_back(stream);
  epoch.trained = step_->metrics();
  if (epoch.trained.non_finite == steps_per_epoch())
    fail("in epoch {} the loss of every step was not finite; lower --learning-rate {}, or set --clip",
         epoch.epoch, options_.learning_rate);
  if (validate_.length() > 0)
    epoch.validated = validation_->score({}, tick_of(progress, title + ", validation"));
  epoch_ += 1;
  is_under_way_ = false;
  close_epoch(epoch);
  epoch.graphs = graph_work();
  epoch.graphs -= work_before;
  epoch.bytes_between_ranks = world_.bytes_moved() - bytes_before;
  epoch.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
  return epoch;
}

// By our own rules its running statistics, since its parameters do not move; by the original's both, since
// they come from its best epoch.
std::map<std::string, at::Tensor> LinetTrainer::frozen_part(size_t stream) {
  const std::string own = fmt::format(".streams.{}.", stream);
  std::map<std::string, at::Tensor> part;
  for (const linet::StreamTensor& tensor : net_->stream_tensors()) {
    const bool is_statistic = tensor.name.find(own + "running_") != std::string::npos;
    const bool is_parameter = tensor.parameter && tensor.name.find(own) != std::string::npos;
    if (is_statistic || (is_parameter && options_.rules == LinetRules::kOriginal))
      part[tensor.name] = tensor.value().detach();
  }
  return part;
}

void LinetTrainer::keep(size_t stream) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, live] : frozen_part(stream)) kept_[stream][name] = live.clone();
  stream_best_[stream].is_kept = true;
}

void LinetTrainer::put_back(size_t stream) {
  const c10::NoGradGuard no_grad;
  for (const auto& [name, live] : frozen_part(stream)) live.copy_(kept_[stream].at(name));
  if (options_.rules == LinetRules::kOriginal)
    for (const lanes::NamedParameter& named : net_->parameters()) named.parameter->refresh();
}

bool LinetTrainer::has_ended_early() const {
  const bool no_patience = options_.patience > 0 && best_.epochs_since >= options_.patience;
  return no_patience || (options_.rules == LinetRules::kOriginal && are_all_frozen());
}

bool LinetTrainer::is_over() const {
  return epoch_ >= options_.epochs || has_ended_early();
}

void LinetTrainer::visit_state(run::StateArchive& archive) {
  archive.value("epoch", epoch_);
  archive.value("is_under_way", is_under_way_);
  archive.value("batches_done", batches_done_);
  const auto visit_best = [&](BestSoFar& best) {
    archive.value("accuracy", best.accuracy);
    archive.value("epochs_since", best.epochs_since);
    archive.value("is_frozen", best.is_frozen);
  };
  archive.part("best", [&] { visit_best(best_); });
  for (size_t stream = 0; stream < stream_best_.size(); ++stream)
    archive.part("best_" + names_[stream], [&] {
      BestSoFar& best = stream_best_[stream];
      visit_best(best);
      // By our own rules a stream is kept when it is frozen, which checkpoints have always said.
      if (options_.rules == LinetRules::kOriginal)
        archive.value("is_kept", best.is_kept);
      else
        best.is_kept = best.is_frozen;
    });
  step_->visit_state(archive);
  for (size_t stream = 0; stream < stream_best_.size(); ++stream) {
    if (!stream_best_[stream].is_kept) continue;
    for (const auto& [name, live] : frozen_part(stream)) {
      at::Tensor& kept = kept_[stream][name];
      if (archive.is_loading()) kept = at::empty_like(live);
      archive.tensor("frozen." + name, kept);
    }
  }
}

void LinetTrainer::close_epoch(LinetEpoch& epoch) {
  epoch.is_best = best_.takes(validate_.length() > 0 ? epoch.validated.accuracy : epoch.trained.accuracy);
  if (monitor_) freeze_streams(epoch);
  epoch.is_last = has_ended_early();
  epoch.are_all_frozen = are_all_frozen();
}

void LinetTrainer::freeze_streams(LinetEpoch& epoch) {
  const bool is_original = options_.rules == LinetRules::kOriginal;
  const std::vector<double>& own =
      validate_.length() > 0 ? epoch.validated.stream_accuracies : epoch.trained.stream_accuracies;
  for (size_t stream = 0; stream < own.size(); ++stream) {
    BestSoFar& best = stream_best_[stream];
    if (is_original && best.is_frozen) continue;
    const bool is_better = best.takes_stream(own[stream], options_.rules);
    if (options_.stream_patience == 0 || best.is_frozen) continue;
    if (is_original && is_better) keep(stream);
    if (!best.is_out_of_patience(options_.stream_patience, options_.rules)) continue;
    best.is_frozen = true;
    if (!best.is_kept) keep(stream);
    step_->freeze(static_cast<int64_t>(stream));
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
