#include "espalier/train/step/step.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/lanes/optim/gradients.h"
#include "espalier/run/archive.h"
#include "espalier/train/step/data_parallel.h"

namespace espalier::train {
namespace {

RateSchedule schedule_of(const TrainStepOptions& options) {
  const int64_t batches = options.batches_per_epoch * options.num_epochs;
  return {options.schedule, batches, options.warm_up * static_cast<double>(batches)};
}

}  // namespace

TrainStep::TrainStep(grow::NetworkStack& population, data::GatherCall call, size_t field,
                     const TrainStepOptions& options)
    : population_(population),
      options_(options),
      schedule_(schedule_of(options)),
      batch_(std::move(call), {.fields = {field},
                               .lanes = population.num_lanes(),
                               .num_batches = options.batches_per_pass,
                               .type = options.compute,
                               .format = options.format,
                               .num_parts = options.world->size(),
                               .part = options.world->rank()}),
      metrics_(population.num_lanes(), population.num_slots(), batch_.device()),
      optimizers_(population, options.optimizer, options.seeds, metrics_),
      graphs_(options.graphs) {
  const at::TensorOptions device(batch_.device());
  const int64_t lanes = population.num_lanes();
  if (options.compute == at::kHalf) loss_scale_.emplace(lanes, batch_.device());
  peak_rates_ = at::full({lanes}, options.optimizer.learning_rate, device.dtype(at::kFloat));
  clip_norms_ = at::full({lanes}, options.clip_norm, device.dtype(at::kDouble));
  TORCH_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1,
              "TrainStep: label_smoothing: want 0 to 1, got ", options.label_smoothing);
  label_smoothing_ = at::full({lanes}, options.label_smoothing, device.dtype(at::kDouble));
  // The ranks' parts are equal: with such a share of each loss, sums over ranks are those of the batch's
  // mean.
  loss_weights_ = at::full({lanes}, 1 / static_cast<double>(options.world->size()), device.dtype(at::kFloat));
  is_active_ = at::ones({lanes}, device.dtype(at::kBool));
  step_ = at::zeros({1}, device.dtype(at::kDouble));
  if (!options.world->is_alone())
    exchange_ = std::make_unique<GradientExchange>(*options.world, population.parameters());
}

void TrainStep::sync_groups(const grow::GrowthReport& report) {
  optimizers_.sync_groups(report);
  TORCH_INTERNAL_ASSERT(!exchange_ || optimizers_.groups().size() == 1,
                        "gradients of seeds are not added up over ranks");
}

void TrainStep::begin_epoch(int64_t epoch, int64_t first_pass) {
  const int64_t batch = epoch * options_.batches_per_epoch, pass = options_.batches_per_pass;
  metrics_.clear();
  batch_.move_to(first_pass + batch / pass, batch % pass);
  step_.fill_(static_cast<double>(batch));
  steps_done_ = 0;
}

void TrainStep::reset() {
  optimizers_.reset_all();
  if (loss_scale_) loss_scale_->reset();
  peak_rates_.fill_(options_.optimizer.learning_rate);
  is_active_.fill_(true);
}

void TrainStep::set_rate_factor(int64_t lane, double factor) {
  peak_rates_.select(0, lane).fill_(options_.optimizer.learning_rate * factor);
}

void TrainStep::freeze(int64_t lane) {
  is_active_.select(0, lane).fill_(false);
}

at::Tensor TrainStep::learning_rates() const {
  return (peak_rates_ * schedule_.at(step_)).to(at::kFloat);
}

void TrainStep::run() {
  batch_.prepare();
  graphs_.run(key(), [this] {
    batch_.deliver();
    update(gradients());
  });
  steps_done_ += 1;
}

std::string TrainStep::key() const {
  return fmt::format("{}, lists {}", population_.signature(), optimizers_.update().generation());
}

void TrainStep::run_eagerly() {
  batch_.prepare();
  batch_.deliver();
  update(gradients());
  steps_done_ += 1;
}

double TrainStep::measure_ms() {
  constexpr int kWarmUpSteps = 3, kTimedSteps = 5;
  using Clock = std::chrono::steady_clock;
  const std::vector<at::Tensor> live = state();
  std::vector<at::Tensor> saved;
  for (const at::Tensor& tensor : live) saved.push_back(tensor.detach().clone());
  std::vector<double> times_ms;
  for (int step = 0; step < kWarmUpSteps + kTimedSteps; ++step) {
    begin_epoch(0);  // one batch again and again: there may be fewer than steps
    step_.item();    // waits for the device
    const auto began = Clock::now();
    run();
    step_.item();
    if (step >= kWarmUpSteps)
      times_ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - began).count());
  }
  for (size_t i = 0; i < live.size(); ++i) live[i].detach().copy_(saved[i]);
  std::ranges::nth_element(times_ms, times_ms.begin() + kTimedSteps / 2);
  return times_ms[kTimedSteps / 2];
}

at::Tensor TrainStep::gradients() {
  population_.move_amplitudes(step_, options_.batches_per_epoch);
  const at::Tensor logits =
      population_.forward(batch_.images()[0], lanes::Mode::kTrain, /*mask=*/{},
                          exchange_ && options_.sync_norm ? sum_over(*options_.world) : lanes::SumOverAll());
  if (exchange_ && !options_.sync_norm)
    for (const at::Tensor& buffer : population_.buffers()) exchange_->add_mean(buffer);
  const at::Tensor sums =  // over this rank's part of the batch; alone, where the epoch's are
      exchange_ ? at::zeros({4, population_.num_lanes()}, step_.options()) : at::Tensor();
  const at::Tensor losses = lanes::lane_cross_entropy(logits, batch_.labels(), /*mask=*/{}, label_smoothing_,
                                                      exchange_ ? sums.narrow(0, 0, 3) : metrics_.scores());
  std::vector<lanes::LaneParameter*> parameters;
  for (const OptimizedGroup& each : optimizers_.groups())
    parameters.insert(parameters.end(), each.parameters.begin(), each.parameters.end());
  lanes::lane_backward(losses, parameters,
                       !loss_scale_ ? loss_weights_
                       : exchange_  ? loss_weights_ * loss_scale_->scales()
                                    : loss_scale_->scales());

  const c10::NoGradGuard no_grad;
  if (!exchange_) return losses.detach();
  sums.select(0, 3).copy_(losses.detach() * loss_weights_);
  exchange_->add(sums, sums);
  exchange_->finish();
  metrics_.scores().add_(sums.narrow(0, 0, 3));
  return sums.select(0, 3).to(losses.scalar_type());
}

void TrainStep::update(const at::Tensor& losses) {
  const c10::NoGradGuard no_grad;
  lanes::UpdateInputs inputs{.losses = losses,
                             .is_active = is_active_,
                             .peak_rates = peak_rates_,
                             .step = step_,
                             .schedule = schedule_.share(),
                             .clip_norms = clip_norms_};
  if (loss_scale_) {
    inputs.scales = loss_scale_->scales();
    inputs.smallest_scale = LossScale::kSmallest;
  }
  optimizers_.update().run(inputs, metrics_.update_sums());
  if (loss_scale_) {
    metrics_.set_loss_scales(loss_scale_->scales());
    loss_scale_->update(metrics_.is_whole());
  }
  batch_.advance();
}

void TrainStep::visit_state(run::StateArchive& archive) {
  archive.lane_tensor("sums", metrics_.sums(), /*axis=*/1);
  archive.tensor("position", batch_.position());
  if (archive.is_loading()) batch_.sync_position();
  archive.tensor("step", step_);
  archive.lane_tensor("peak_rates", peak_rates_);
  archive.lane_tensor("is_active", is_active_);
  if (loss_scale_) loss_scale_->visit_state(archive);
  archive.value("batches_done", steps_done_);
}

std::vector<at::Tensor> TrainStep::state() {
  std::vector<at::Tensor> tensors = population_.buffers();
  for (const OptimizedGroup& each : optimizers_.groups()) {
    for (const lanes::LaneParameter* parameter : each.parameters) {
      tensors.push_back(parameter->value());
      tensors.push_back(parameter->compute());
    }
    const auto& kept = each.optimizer->state();
    tensors.insert(tensors.end(), kept.begin(), kept.end());
  }
  if (loss_scale_)
    for (const at::Tensor& tensor : loss_scale_->state()) tensors.push_back(tensor);
  tensors.insert(tensors.end(), {metrics_.sums(), batch_.position(), step_, population_.amplitudes()});
  return tensors;
}

}  // namespace espalier::train
