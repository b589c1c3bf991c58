#include "espalier/train/evaluation.h"

#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "espalier/core/interrupt.h"
#include "espalier/lanes/lane_loss.h"

namespace espalier::train {

Evaluation::Evaluation(grow::Population& population, data::GatherCall call, size_t field, int64_t num_batches,
                       const TrainStepOptions& options)
    : population_(population),
      batch_(std::move(call), {field}, /*lanes=*/1, options.compute, options.format),
      num_batches_(num_batches),
      graphs_(options.graphs) {
  const at::TensorOptions device(batch_.device());
  const int64_t lanes = population.num_lanes();
  without_ = at::zeros({lanes, population.num_slots()}, device.dtype(at::kBool));
  pass_ = at::zeros({3, lanes}, device.dtype(at::kDouble));
  sums_ = at::zeros({1 + population.num_slots(), 3, lanes}, pass_.options());
}

void Evaluation::clear() {
  sums_.zero_();
}

void Evaluation::pass(const Tick& tick) {
  without_.zero_();
  pass_into(0, tick);
}

void Evaluation::pass_without(int64_t slot, const Tick& tick) {
  without_.zero_();
  without_.select(1, slot).fill_(true);
  pass_into(1 + slot, tick);
}

std::vector<LaneScore> Evaluation::score(const Tick& tick) {
  pass(tick);
  return scores(sums_.select(0, 0).to(at::kCPU));
}

std::vector<LaneScore> Evaluation::score_without(int64_t slot, const Tick& tick) {
  pass_without(slot, tick);
  return scores(sums_.select(0, 1 + slot).to(at::kCPU));
}

void Evaluation::pass_into(int64_t place, const Tick& tick) {
  pass_.zero_();
  batch_.move_to(0);
  const std::string key = population_.signature();
  for (int64_t batch = 0; batch < num_batches_; ++batch) {
    throw_if_interrupted();
    graphs_.run(key, [this] { body(); });
    if (tick) tick(batch + 1, num_batches_);
  }
  sums_.select(0, place).copy_(pass_);
}

std::vector<LaneScore> Evaluation::scores(const at::Tensor& copied) {
  const auto sums = copied.accessor<double, 2>();
  std::vector<LaneScore> scores;
  for (int64_t lane = 0; lane < sums.size(1); ++lane) {
    const double samples = std::max(sums[2][lane], 1.0);
    scores.push_back({.loss = sums[0][lane] / samples, .accuracy = sums[1][lane] / samples});
  }
  return scores;
}

void Evaluation::body() {
  const c10::NoGradGuard no_grad;
  batch_.gather();
  const int64_t lanes = population_.num_lanes();
  const at::Tensor logits = population_.forward(batch_.images[0].expand({lanes, -1, -1, -1, -1}),
                                                lanes::Mode::kEvaluate, /*mask=*/{}, without_);
  // A last batch that is not full says so in its labels.
  const at::Tensor labels = batch_.labels.expand({lanes, -1});
  const lanes::LaneAccuracy hits = lanes::lane_accuracy(logits, labels);
  pass_.select(0, 0).add_(lanes::lane_cross_entropy(logits, labels).to(at::kDouble) * hits.num_valid);
  pass_.select(0, 1).add_(hits.num_correct);
  pass_.select(0, 2).add_(hits.num_valid);
  batch_.advance();
}

}  // namespace espalier::train
