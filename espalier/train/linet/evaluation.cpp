#include "espalier/train/linet/evaluation.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>

#include "espalier/core/machine/interrupt.h"
#include "espalier/lanes/head/loss.h"
#include "espalier/linet/stream_balance.h"
#include "espalier/train/step/data_parallel.h"

namespace espalier::train {

LinetEvaluation::LinetEvaluation(linet::Linet& net, linet::StreamMonitor* monitor, data::GatherCall call,
                                 const std::vector<size_t>& fields, int64_t num_batches,
                                 at::ScalarType compute, MemoryFormat format,
                                 const StepGraphs::Options& graphs, ranks::World& world)
    : world_(world),
      net_(net),
      monitor_(monitor),
      batch_(std::move(call),
             {.fields = fields, .num_batches = num_batches, .type = compute, .format = format}),
      num_batches_(num_batches),
      graphs_(graphs) {
  const int64_t streams = net.num_streams(), classes = net.shape().num_classes;
  const at::TensorOptions device(batch_.device());
  keep_ = at::ones({streams, batch_.labels().size(1)}, device.dtype(at::kBool));
  classes_ = at::arange(classes, device.dtype(at::kLong));
  sums_ = at::zeros({2 + 2 * streams + classes * classes}, device.dtype(at::kDouble));
  loss_ = sums_.narrow(0, 0, 1);
  batches_ = sums_.narrow(0, 1, 1);
  hits_ = sums_.narrow(0, 2, streams);
  shares_ = sums_.narrow(0, 2 + streams, streams);
  confusion_ = sums_.narrow(0, 2 + 2 * streams, classes * classes).view({classes, classes});
}

LinetScore LinetEvaluation::score(std::optional<int64_t> without, const Tick& tick) {
  sums_.zero_();
  keep_.fill_(true);
  if (without) keep_.select(0, *without).fill_(false);
  const auto [begin, end] = own_batches(num_batches_, world_);
  batch_.move_to(0, begin, end);
  for (int64_t batch = begin; batch < end; ++batch) {
    throw_if_interrupted();
    batch_.prepare();
    graphs_.run(without ? "ablated" : "whole", [&] { body(without.has_value()); });
    if (tick) tick(batch - begin + 1, end - begin);
  }
  world_.sum_(sums_);

  const at::Tensor host = sums_.to(at::kCPU);
  const double* const sums = host.const_data_ptr<double>();
  const int64_t streams = net_.num_streams(), classes = net_.shape().num_classes;
  LinetScore score;
  double samples = 0, correct = 0, class_sum = 0, classes_there = 0;
  for (int64_t label = 0; label < classes; ++label) {
    std::vector<int64_t>& answers = score.confusion.emplace_back();
    double class_samples = 0;
    for (int64_t answer = 0; answer < classes; ++answer) {
      const double count = sums[2 + 2 * streams + label * classes + answer];
      answers.push_back(static_cast<int64_t>(count));
      class_samples += count;
    }
    const auto right = static_cast<double>(answers[static_cast<size_t>(label)]);
    samples += class_samples;
    correct += right;
    if (class_samples > 0) {
      class_sum += right / class_samples;
      classes_there += 1;
    }
  }
  score.loss = sums[0] / std::max(samples, 1.0);
  score.accuracy = correct / std::max(samples, 1.0);
  score.mean_class_accuracy = class_sum / std::max(classes_there, 1.0);
  for (int64_t stream = 0; stream < streams; ++stream) {
    if (monitor_) score.stream_accuracies.push_back(sums[2 + stream] / std::max(samples, 1.0));
    score.shares.push_back(sums[2 + streams + stream] / std::max(sums[1], 1.0));
  }
  return score;
}

void LinetEvaluation::body(bool is_ablated) {
  const c10::NoGradGuard no_grad;
  batch_.deliver();
  std::vector<at::Tensor> contributions;
  linet::LinetContext context{.mode = lanes::Mode::kEvaluate};
  if (is_ablated) {
    context.keep = keep_;
  } else {
    context.contributions = &contributions;
  }
  const linet::LinetOutput out = net_.forward(batch_.images(), context);
  const at::Tensor labels = batch_.labels().select(0, 0);  // [B]; -100 where a last batch has no sample
  const lanes::LaneAccuracy whole = lanes::lane_accuracy(out.logits, batch_.labels());
  loss_.add_(lanes::lane_cross_entropy(out.logits, batch_.labels()).to(at::kDouble) * whole.num_valid);
  // A row of zeros where there is no sample; products of zeros and ones are exact.
  const at::Tensor is_label = (labels.unsqueeze(1) == classes_).to(at::kDouble);  // [B,K]
  const at::Tensor is_answer =
      (out.logits.select(0, 0).argmax(1, true) == classes_).to(at::kDouble);  // [B,K]
  confusion_.add_(at::mm(is_label.t(), is_answer));
  if (monitor_) {
    const at::Tensor every = batch_.labels().expand({net_.num_streams(), -1});
    hits_.add_(lanes::lane_accuracy(monitor_->forward(out.features), every).num_correct);
  }
  if (!is_ablated) shares_.add_(linet::stream_shares(contributions));
  batches_.add_(1);
  batch_.advance();
}

}  // namespace espalier::train
