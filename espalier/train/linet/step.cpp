#include "espalier/train/linet/step.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/mv.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/norm/synced.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/linet/stream_balance.h"
#include "espalier/run/archive.h"
#include "espalier/train/step/data_parallel.h"

namespace espalier::train {
namespace {

// A head is convex and small: one rate does for all.
constexpr double kMonitorRate = 1e-2;

}  // namespace

LinetStep::LinetStep(linet::Linet& net, linet::StreamMonitor* monitor, data::GatherCall call,
                     const std::vector<size_t>& fields, const LinetStepOptions& options)
    : net_(net),
      monitor_(monitor),
      options_(options),
      batch_(std::move(call), {.fields = fields,
                               .num_batches = options.steps_per_epoch,
                               .type = options.compute,
                               .format = options.format,
                               .num_parts = options.world->size(),
                               .part = options.world->rank()}),
      graphs_(options.graphs) {
  const int64_t paths = net.num_streams() + 1;
  const at::TensorOptions device(batch_.device());
  if (options.rate_factors.empty()) options_.rate_factors.assign(static_cast<size_t>(paths), 1);
  if (std::ssize(options_.rate_factors) != paths)
    fail_usage("rates: want {} factors, one for each of {} streams and one for the integrated path, got {}",
               paths, paths - 1, options_.rate_factors.size());
  if (options.compute == at::kHalf) loss_scale_.emplace(1, batch_.device());
  peak_rates_ =
      at::tensor(options_.rate_factors, at::kDouble).mul_(options.learning_rate).to(batch_.device());
  is_frozen_ = at::zeros({paths}, device.dtype(at::kBool));
  TORCH_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
              "LinetStep: label_smoothing: want 0 to 1, got ", options.label_smoothing);
  label_smoothing_ = at::full({1}, options.label_smoothing, device.dtype(at::kDouble));
  step_ = at::zeros({1}, device.dtype(at::kDouble));
  sums_ = at::zeros({kNumRows, paths}, device.dtype(at::kDouble));
  own_sums_ = sums_;
  const at::Tensor all = at::arange(paths, at::kLong);
  for (linet::PathGroup& group : net.groups()) {
    const at::Tensor owners = at::tensor(group.paths, at::kLong);
    Group& made = groups_.emplace_back();
    made.paths = owners.to(batch_.device());
    made.is_path = (owners.unsqueeze(1) == all).to(at::kDouble).to(batch_.device());
    made.optimizer = optimizer_for(group.parameters);
    made.group = std::move(group);
  }
  if (monitor)
    monitor_optimizer_ = std::make_unique<lanes::LaneAdamW>(
        lanes::without_names(monitor->parameters()),
        lanes::LaneAdamWOptions{.learning_rate = kMonitorRate, .weight_decay = 0});
  if (options.world->is_alone()) return;
  own_sums_ = at::zeros({kNumRows + 1, paths}, device.dtype(at::kDouble));
  std::vector<lanes::LaneParameter*> exchanged = lanes::without_names(net.parameters());
  if (monitor)
    for (lanes::LaneParameter* parameter : lanes::without_names(monitor->parameters()))
      exchanged.push_back(parameter);
  exchange_ = std::make_unique<GradientExchange>(*options.world, std::move(exchanged));
}

std::unique_ptr<lanes::LaneOptimizer> LinetStep::optimizer_for(
    const std::vector<lanes::LaneParameter*>& parameters) const {
  if (options_.optimizer == OptimizerKind::kSgd)
    return std::make_unique<lanes::LaneSGD>(parameters,
                                            lanes::LaneSgdOptions{.learning_rate = options_.learning_rate,
                                                                  .momentum = options_.momentum,
                                                                  .nesterov = options_.momentum > 0,
                                                                  .weight_decay = options_.weight_decay});
  return std::make_unique<lanes::LaneAdamW>(parameters,
                                            lanes::LaneAdamWOptions{.learning_rate = options_.learning_rate,
                                                                    .weight_decay = options_.weight_decay});
}

void LinetStep::begin_epoch(int64_t epoch) {
  sums_.zero_();
  batch_.move_to(epoch);
  step_.fill_(static_cast<double>(epoch * options_.steps_per_epoch));
  steps_done_ = 0;
}

void LinetStep::freeze(int64_t stream) {
  is_frozen_.select(0, stream).fill_(true);
}

void LinetStep::run() {
  batch_.prepare();
  graphs_.run("step", [this] { body(); });
  steps_done_ += 1;
}

void LinetStep::run_eagerly() {
  batch_.prepare();
  body();
  steps_done_ += 1;
}

void LinetStep::body() {
  update(gradients());
}

// What is drawn is drawn for the whole batch, by a sample's place in it: a part of it is the same wherever it
// is.
at::Tensor LinetStep::own_part(const at::Tensor& whole) const {
  if (!exchange_ || !whole.defined()) return whole;
  const int64_t batch = batch_.labels().size(1);
  return whole.narrow(1, options_.world->rank() * batch, batch).clone(at::MemoryFormat::Contiguous);
}

// keep: [S,B] of the whole batch, or undefined.
linet::LinetContext LinetStep::context_of(const at::Tensor& keep) {
  linet::LinetContext context{.keep = own_part(keep), .fallbacks = own_row(kFallbacks)};
  const int64_t whole = batch_.labels().size(1) * options_.world->size();
  if (options_.dropout > 0)
    context.dropout = own_part(
        linet::dropout_factors(whole, net_.shape().num_features(), options_.dropout, options_.seed, step_));
  if (exchange_ && options_.sync_norm) {
    context.sum_over_all = sum_over(*options_.world);
    // Every rank sees those of the whole batch: they count once.
    if (!options_.world->leads()) context.fallbacks = at::Tensor();
  }
  return context;
}

at::Tensor LinetStep::balance_loss(std::vector<at::Tensor> contributions) const {
  if (exchange_ && options_.sync_norm) {
    // Norms over the whole batch: their squares add up.
    const at::Tensor squares =
        lanes::summed_over_all(at::stack(contributions).square(), sum_over(*options_.world));  // [P,S]
    contributions = squares.sqrt().unbind(0);
  }
  return linet::stream_balance_loss(contributions, options_.rules);
}

at::Tensor LinetStep::gradients() {
  batch_.deliver();
  const auto ranks = static_cast<double>(options_.world->size());
  if (exchange_) own_sums_.zero_();
  at::Tensor keep;  // [S,B] of the whole batch
  if (options_.blanking.largest > 0)
    keep = linet::blanking_mask({.rules = options_.rules,
                                 .streams = net_.num_streams(),
                                 .batch = batch_.labels().size(1) * options_.world->size()},
                                options_.seed, step_, options_.blanking.at(step_, options_.rules));
  std::vector<at::Tensor> contributions;
  linet::LinetContext context = context_of(keep);
  if (options_.balance > 0) {
    context.contributions = &contributions;
    context.contributions_of = options_.balance_layer;
  }
  const linet::LinetOutput out = net_.forward(batch_.images(), context);
  if (exchange_ && !options_.sync_norm)
    for (const auto& [name, buffer] : net_.named_buffers())
      if (buffer.is_floating_point()) exchange_->add_mean(buffer);
  const at::Tensor loss =
      lanes::lane_cross_entropy(out.logits, batch_.labels(), /*mask=*/{}, label_smoothing_);  // [1]
  at::Tensor total = loss;
  if (options_.balance > 0) {
    const at::Tensor balance = balance_loss(contributions);
    total = total + balance.to(loss.scalar_type()) * options_.balance;
    own_integrated_of(kBalance).add_(exchange_ ? balance.detach() / ranks : balance.detach());
  }
  // The ranks' parts are equal: with such a share of each loss, sums over ranks are those of the batch's
  // mean.
  if (exchange_) total = total / ranks;
  lanes::lane_backward(loss_scale_ ? total * loss_scale_->scales() : total,
                       lanes::without_names(net_.parameters()));
  at::Tensor monitor_losses;
  if (monitor_) monitor_losses = monitor_gradients(out.features, keep);

  const c10::NoGradGuard no_grad;
  const lanes::LaneAccuracy hits = lanes::lane_accuracy(out.logits.detach(), batch_.labels());
  own_integrated_of(kLoss).add_(loss.detach() * hits.num_valid);
  own_integrated_of(kCorrect).add_(hits.num_correct);
  own_integrated_of(kValid).add_(hits.num_valid);
  at::Tensor decisive = total.detach();  // [1]
  if (exchange_) {
    own_integrated_of(kNumRows).copy_(decisive);
    if (monitor_) own_streams_of(kNumRows).copy_(monitor_losses);
    exchange_->add(own_sums_, own_sums_);
    exchange_->finish();
    sums_.add_(own_sums_.narrow(0, 0, kNumRows));
    decisive = own_integrated_of(kNumRows);
    monitor_losses = own_streams_of(kNumRows);
  }
  if (monitor_) monitor_optimizer_->step(at::isfinite(monitor_losses));
  return decisive;
}

at::Tensor LinetStep::monitor_gradients(const at::Tensor& features, const at::Tensor& keep) {
  const at::Tensor labels = batch_.labels().expand({net_.num_streams(), -1});
  const at::Tensor own_keep = own_part(keep);
  const at::Tensor logits = monitor_->forward(features);
  const at::Tensor losses = lanes::lane_cross_entropy(logits, labels, own_keep);  // [S]
  const lanes::LaneAccuracy hits = lanes::lane_accuracy(logits.detach(), labels, own_keep);
  at::Tensor total = losses;
  if (exchange_) {
    // Ranks have unequal numbers of samples that kept a stream; every rank knows all of them.
    const at::Tensor own = hits.num_valid.to(losses.scalar_type());
    total = losses * (keep.defined() ? own / keep.sum(1).clamp_min(1)
                                     : own / static_cast<double>(labels.size(1) * options_.world->size()));
  }
  lanes::lane_backward(total, lanes::without_names(monitor_->parameters()));
  const c10::NoGradGuard no_grad;
  own_streams_of(kLoss).add_(losses.detach() * hits.num_valid);
  own_streams_of(kCorrect).add_(hits.num_correct);
  own_streams_of(kValid).add_(hits.num_valid);
  return total.detach();
}

void LinetStep::update(const at::Tensor& loss) {
  const c10::NoGradGuard no_grad;
  const at::Tensor rates = (peak_rates_ * options_.schedule.at(step_)).to(at::kFloat);  // [S+1]
  at::Tensor squares = at::zeros_like(peak_rates_);                                     // [S+1] f64
  for (const Group& each : groups_) {
    if (loss_scale_)
      lanes::scale_lane_gradients_(each.group.parameters,
                                   loss_scale_->inverse().expand({each.paths.size(0)}));
    const at::Tensor norms = lanes::lane_gradient_norms(each.group.parameters).to(at::kDouble);  // [L]
    squares = squares + at::mv(each.is_path.t(), norms.square());
    at::index_select_out(each.optimizer->learning_rates, rates, 0, each.paths);
  }
  row(kNorm).add_(squares.sqrt());
  const at::Tensor norm = squares.sum().sqrt().unsqueeze(0);  // [1]
  const at::Tensor is_sound = at::isfinite(loss);
  const at::Tensor moves = is_sound.logical_and(at::isfinite(norm));  // [1] bool
  const at::Tensor factor = (options_.clip_norm / (norm + 1e-6)).clamp_max(1).to(at::kFloat);
  for (const Group& each : groups_) {
    if (options_.clip_norm > 0)
      lanes::scale_lane_gradients_(each.group.parameters, factor.expand({each.paths.size(0)}));
    each.optimizer->step(is_frozen_.index_select(0, each.paths).logical_not_().logical_and_(moves));
  }
  at::Tensor failed = moves.logical_not();
  if (loss_scale_) {
    // What a lower scale may cure is left out and not flagged.
    const at::Tensor overflows = is_sound.logical_and(failed);
    failed = failed.logical_and(overflows.logical_not().logical_or_(loss_scale_->is_smallest()));
    integrated_of(kSkipped).add_(overflows);
    integrated_of(kScale).copy_(loss_scale_->scales());
    loss_scale_->update(overflows.logical_not());
  }
  integrated_of(kNonFinite).add_(failed);
  batch_.advance();
  step_.add_(1);
}

LinetMetrics LinetStep::metrics() const {
  const at::Tensor host = sums_.to(at::kCPU);
  const auto sums = host.accessor<double, 2>();
  const int64_t streams = net_.num_streams();
  const auto steps = static_cast<double>(std::max<int64_t>(steps_done_, 1));
  const auto mean = [&](Row which, int64_t path) {
    return sums[which][path] / std::max(sums[kValid][path], 1.0);
  };
  LinetMetrics metrics{.loss = mean(kLoss, streams),
                       .accuracy = mean(kCorrect, streams),
                       .balance = sums[kBalance][streams] / steps,
                       .non_finite = static_cast<int64_t>(sums[kNonFinite][streams]),
                       .skipped = static_cast<int64_t>(sums[kSkipped][streams]),
                       .loss_scale = sums[kScale][streams]};
  for (int64_t stream = 0; stream < streams; ++stream)
    metrics.norm_fallbacks.push_back(static_cast<int64_t>(sums[kFallbacks][stream]));
  for (int64_t path = 0; path <= streams; ++path) metrics.gradient_norms.push_back(sums[kNorm][path] / steps);
  if (monitor_)
    for (int64_t stream = 0; stream < streams; ++stream) {
      metrics.stream_losses.push_back(mean(kLoss, stream));
      metrics.stream_accuracies.push_back(mean(kCorrect, stream));
    }
  return metrics;
}

void LinetStep::visit_state(run::StateArchive& archive) {
  archive.part("network", [&] {
    for (const lanes::NamedParameter& named : net_.parameters())
      archive.tensor(named.name, named.parameter->storage());
    for (const auto& [name, buffer] : net_.named_buffers()) archive.tensor(name, buffer);
  });
  const auto visit_optimizer = [&](const std::string& name, const lanes::LaneOptimizer& optimizer) {
    for (size_t i = 0; i < optimizer.state().size(); ++i)
      archive.tensor(fmt::format("{}.{}", name, i), optimizer.state()[i]);
  };
  for (size_t i = 0; i < groups_.size(); ++i)
    visit_optimizer(fmt::format("optimizer.{}", i), *groups_[i].optimizer);
  if (monitor_) {
    for (const lanes::NamedParameter& named : monitor_->parameters())
      archive.tensor(named.name, named.parameter->storage());
    visit_optimizer("monitor_optimizer", *monitor_optimizer_);
  }
  if (archive.is_loading()) {
    for (const lanes::NamedParameter& named : net_.parameters()) named.parameter->refresh();
    if (monitor_)
      for (const lanes::NamedParameter& named : monitor_->parameters()) named.parameter->refresh();
  }
  archive.tensor("sums", sums_);
  archive.tensor("position", batch_.position());
  if (archive.is_loading()) batch_.sync_position();
  archive.tensor("step", step_);
  archive.tensor("is_frozen", is_frozen_);
  if (loss_scale_) loss_scale_->visit_state(archive);
  archive.value("steps_done", steps_done_);
}

}  // namespace espalier::train
