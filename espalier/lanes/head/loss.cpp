#include "espalier/lanes/head/loss.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/core/ignored_label.h"
#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/launch.h"
#endif

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// [L,B] bool: samples that count.
at::Tensor valid_samples(const at::Tensor& labels, const at::Tensor& mask) {
  const at::Tensor labelled = labels != kIgnoredLabel;
  return mask.defined() ? labelled.logical_and(mask) : labelled;
}

// One lane's valid samples and their labels, as columns.
struct LaneTargets {
  at::Tensor valid;    // [B,1] bool
  at::Tensor labels;   // [B,1] i64, 0 where not valid
  at::Tensor divisor;  // [], how many are valid, at least 1

  LaneTargets(const at::Tensor& all_valid, const at::Tensor& all_labels, int64_t lane, at::ScalarType type)
      : valid(all_valid.select(0, lane).unsqueeze(1)),
        // A wrong label of a valid sample stays, for gather() to refuse.
        labels(at::where(valid, all_labels.select(0, lane).unsqueeze(1), 0)),
        divisor(valid.sum(type).clamp_min(1)) {}
};

#if ESPALIER_WITH_CUDA
LossArgs loss_args(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask,
                   const at::Tensor& smoothing = {}) {
  LossArgs args;
  args.lanes = static_cast<int32_t>(logits.size(0));
  args.batch = static_cast<int32_t>(logits.size(1));
  args.classes = static_cast<int32_t>(logits.size(2));
  args.type = kernel_type(logits);
  args.logits = stack_of(logits);
  args.labels = labels.const_data_ptr<int64_t>();
  args.labels_stride = labels.stride(0);
  if (mask.defined()) {
    args.mask = mask.const_data_ptr<bool>();
    args.mask_stride = mask.stride(0);
  }
  if (smoothing.defined()) args.smoothing = smoothing.const_data_ptr<double>();
  return args;
}

struct CrossEntropyKernelFunction : torch::autograd::Function<CrossEntropyKernelFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, at::Tensor labels,
                            const std::optional<at::Tensor>& given_mask,
                            const std::optional<at::Tensor>& given_smoothing,
                            const std::optional<at::Tensor>& sums) {
    const at::Tensor mask = given_mask.value_or(at::Tensor());
    const at::Tensor smoothing = given_smoothing.value_or(at::Tensor());
    const c10::cuda::CUDAGuard guard(given.device());
    const at::Tensor logits = dense_lanes(given);
    const auto wide = logits.options().dtype(wide_type(logits));
    const bool has_samples = logits.numel() > 0;
    const at::Tensor loss =
        has_samples ? at::empty({logits.size(0)}, wide) : at::zeros({logits.size(0)}, wide);
    LossArgs args = loss_args(logits, labels, mask, smoothing);
    args.loss = {loss.data_ptr(), 1};
    if (sums) args.sums = sums->mutable_data_ptr<double>();
    if (has_samples) C10_CUDA_CHECK(launch_cross_entropy_forward(args, stream_of(logits)));
    ctx->save_for_backward({logits, labels, mask, smoothing});
    return loss;
  }
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &logits = saved[0], grad_logits = empty_lanes(logits.sizes(), logits.options());
    const c10::cuda::CUDAGuard guard(logits.device());
    LossArgs args = loss_args(logits, saved[1], saved[2], saved[3]);
    args.loss = {grads[0].data_ptr(), grads[0].stride(0)};
    args.grad_logits = stack_of(grad_logits);
    if (logits.numel() > 0) C10_CUDA_CHECK(launch_cross_entropy_backward(args, stream_of(logits)));
    return {grad_logits, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};
#endif

// Where values are on the CPU: a read of memory, and no wait.
double smoothing_of(const at::Tensor& smoothing, int64_t lane) {
  return smoothing.defined() ? smoothing.const_data_ptr<double>()[lane] : 0;
}

struct LaneCrossEntropyFunction : torch::autograd::Function<LaneCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& logits, at::Tensor labels,
                            at::Tensor valid, const std::optional<at::Tensor>& given_smoothing) {
    const at::Tensor all_smoothing = given_smoothing.value_or(at::Tensor());  // [L]
    const at::ScalarType type = sum_type(logits);
    const auto classes = static_cast<double>(logits.size(2));
    const bool is_double = logits.scalar_type() == at::kDouble;
    at::Tensor loss =
        empty_lanes({logits.size(0), 1}, logits.options().dtype(is_double ? at::kDouble : at::kFloat))
            .select(1, 0);
    for (int64_t lane = 0; lane < logits.size(0); ++lane) {
      const LaneTargets targets(valid, labels, lane, type);
      const double smoothing = smoothing_of(all_smoothing, lane);
      const at::Tensor logs = logits.select(0, lane).to(type).log_softmax(1);  // [B,K]
      at::Tensor samples = -logs.gather(1, targets.labels);                    // [B,1]
      if (smoothing > 0)
        samples = samples * (1 - smoothing) - logs.sum(1, /*keepdim=*/true) * (smoothing / classes);
      loss.select(0, lane).copy_(at::where(targets.valid, samples, 0).sum() / targets.divisor);
    }
    ctx->save_for_backward({logits, labels, valid, all_smoothing});
    return loss;
  }

  // (softmax - q) / number of valid samples, times the lane's own gradient.
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor& logits = saved[0];
    const at::ScalarType type = sum_type(logits);
    const at::Tensor classes = at::arange(logits.size(2), saved[1].options());  // [K] i64
    const at::Tensor grad_logits = empty_lanes(logits.sizes(), logits.options());
    for (int64_t lane = 0; lane < logits.size(0); ++lane) {
      const LaneTargets targets(saved[2], saved[1], lane, type);
      const double smoothing = smoothing_of(saved[3], lane);
      at::Tensor slope = logits.select(0, lane).to(type).softmax(1);  // [B,K]
      if (smoothing > 0) slope = slope - smoothing / static_cast<double>(logits.size(2));
      slope = slope - (classes == targets.labels).to(type) * (1 - smoothing);
      slope = slope * (grads[0].select(0, lane).to(type) / targets.divisor);
      grad_logits.select(0, lane).copy_(at::where(targets.valid, slope, 0));
    }
    return {grad_logits, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

void check(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask, const char* function) {
  TORCH_CHECK(logits.dim() == 3 && logits.is_floating_point() && logits.size(2) >= 1, function,
              ": logits: want [L,B,K] of floats, got ", logits.sizes(), " ", logits.scalar_type());
  TORCH_CHECK(labels.scalar_type() == at::kLong, function, ": labels: want int64, got ",
              labels.scalar_type());
  check_sizes(labels, {logits.size(0), logits.size(1)}, function, "labels", "[L,B]");
  check_mask(mask, logits.size(0), logits.size(1), function);
}

// Its values only where reading them waits for nothing.
void check_smoothing(const at::Tensor& smoothing, const at::Tensor& logits) {
  if (!smoothing.defined()) return;
  check_sizes(smoothing, {logits.size(0)}, "lane_cross_entropy", "label_smoothing", "[L]");
  TORCH_CHECK(smoothing.scalar_type() == at::kDouble && smoothing.is_contiguous() &&
                  smoothing.device() == logits.device(),
              "lane_cross_entropy: label_smoothing: want Double, dense, on ", logits.device(),
              " as logits, got ", smoothing.scalar_type(), " on ", smoothing.device());
  if (smoothing.device().type() != at::kCPU) return;
  for (int64_t lane = 0; lane < smoothing.size(0); ++lane) {
    const double share = smoothing_of(smoothing, lane);
    TORCH_CHECK(share >= 0 && share <= 1, "lane_cross_entropy: label_smoothing[", lane,
                "]: want 0 to 1, got ", share);
  }
}

void check_sums(const at::Tensor& sums, const at::Tensor& logits) {
  if (!sums.defined()) return;
  check_sizes(sums, {3, logits.size(0)}, "lane_cross_entropy", "sums", "[3,L]");
  TORCH_CHECK(sums.scalar_type() == at::kDouble && sums.is_contiguous() && sums.device() == logits.device(),
              "lane_cross_entropy: sums: want Double, dense, on ", logits.device(), " as logits, got ",
              sums.scalar_type(), " with strides ", sums.strides(), " on ", sums.device());
}

}  // namespace

at::Tensor lane_cross_entropy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask,
                              const at::Tensor& label_smoothing, const at::Tensor& sums) {
  check(logits, labels, mask, "lane_cross_entropy");
  check_smoothing(label_smoothing, logits);
  check_sums(sums, logits);
#if ESPALIER_WITH_CUDA
  if (logits.is_cuda() && has_kernel_type(logits))
    return CrossEntropyKernelFunction::apply(logits, dense_rows(labels), if_defined(dense_rows(mask)),
                                             if_defined(label_smoothing), if_defined(sums));
#endif
  at::Tensor losses = LaneCrossEntropyFunction::apply(logits, labels, valid_samples(labels, mask),
                                                      if_defined(label_smoothing));
  if (sums.defined()) {
    const LaneAccuracy hits = lane_accuracy(logits, labels, mask);
    sums.select(0, 0).add_(losses.detach() * hits.num_valid);
    sums.select(0, 1).add_(hits.num_correct);
    sums.select(0, 2).add_(hits.num_valid);
  }
  return losses;
}

LaneAccuracy lane_accuracy(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& mask) {
  check(logits, labels, mask, "lane_accuracy");
#if ESPALIER_WITH_CUDA
  if (logits.is_cuda() && has_kernel_type(logits)) {
    const c10::cuda::CUDAGuard guard(logits.device());
    const at::Tensor read = dense_lanes(logits.detach());
    const at::Tensor own_labels = dense_rows(labels), own_mask = dense_rows(mask);
    const LaneAccuracy accuracy{.num_correct = at::zeros({logits.size(0)}, labels.options()),
                                .num_valid = at::zeros({logits.size(0)}, labels.options())};
    LossArgs args = loss_args(read, own_labels, own_mask);
    args.num_correct = accuracy.num_correct.mutable_data_ptr<int64_t>();
    args.num_valid = accuracy.num_valid.mutable_data_ptr<int64_t>();
    if (logits.numel() > 0) C10_CUDA_CHECK(launch_accuracy(args, stream_of(read)));
    return accuracy;
  }
#endif
  const at::Tensor valid = valid_samples(labels, mask);
  // Integers: exact in any order, so all lanes at once.
  const at::Tensor correct = (logits.detach().argmax(2) == labels).logical_and(valid);
  return {.num_correct = correct.sum(1), .num_valid = valid.sum(1)};
}

}  // namespace espalier::lanes
