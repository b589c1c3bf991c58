#include "espalier/lanes/head/score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/ignored_label.h"
#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include "espalier/lanes/head/kernel.h"
#include "espalier/lanes/launch.h"
#endif

namespace espalier::lanes {
namespace {

// The cross entropy of one sample; NaN where a logit is.
double cross_entropy(const double* logits, int64_t classes, int64_t label) {
  if (label < 0 || label >= classes) return std::numeric_limits<double>::quiet_NaN();
  double most = -std::numeric_limits<double>::infinity();
  for (int64_t k = 0; k < classes; ++k) most = logits[k] > most || std::isnan(logits[k]) ? logits[k] : most;
  double sum = 0;
  for (int64_t k = 0; k < classes; ++k) sum += std::exp(logits[k] - most);
  return std::log(sum) - (logits[label] - most);
}

// The first of the largest; a NaN is larger than all, as in torch's argmax.
int64_t largest(const double* logits, int64_t classes) {
  int64_t at = 0;
  for (int64_t k = 1; k < classes && !std::isnan(logits[at]); ++k)
    if (logits[k] > logits[at] || std::isnan(logits[k])) at = k;
  return at;
}

void check(const at::Tensor& sums, const at::Tensor& logits, const at::Tensor& labels) {
  TORCH_CHECK(logits.dim() == 3 && logits.is_floating_point() && logits.size(2) >= 1,
              "add_lane_scores_: logits: want [L,B,K] of floats, got ", logits.sizes(), " ",
              logits.scalar_type());
  TORCH_CHECK(labels.scalar_type() == at::kLong, "add_lane_scores_: labels: want int64, got ",
              labels.scalar_type());
  check_sizes(labels, {logits.size(0), logits.size(1)}, "add_lane_scores_", "labels", "[L,B]");
  TORCH_CHECK(labels.device() == logits.device() && sums.device() == logits.device(),
              "add_lane_scores_: labels, sums: want them on ", logits.device(), ", as logits, got ",
              labels.device(), ", ", sums.device());
  check_sizes(sums, {3, logits.size(0)}, "add_lane_scores_", "sums", "[3,L]");
  TORCH_CHECK(sums.scalar_type() == at::kDouble && sums.is_contiguous(),
              "add_lane_scores_: sums: want float64, contiguous, got ", sums.scalar_type(), " with strides ",
              sums.strides());
}

}  // namespace

void add_lane_scores_(const at::Tensor& sums, const at::Tensor& logits, const at::Tensor& labels) {
  check(sums, logits, labels);
  const int64_t lanes = logits.size(0), batch = logits.size(1), classes = logits.size(2);
  if (lanes == 0 || batch == 0) return;
#if ESPALIER_WITH_CUDA
  if (logits.is_cuda() && has_kernel_type(logits)) {
    const c10::cuda::CUDAGuard guard(logits.device());
    const at::Tensor read = dense_lanes(logits.detach());
    const at::Tensor rows = dense_rows(labels);
    C10_CUDA_CHECK(launch_add_scores({.lanes = static_cast<int32_t>(lanes),
                                      .batch = static_cast<int32_t>(batch),
                                      .classes = static_cast<int32_t>(classes),
                                      .type = kernel_type(read),
                                      .logits = stack_of(read),
                                      .labels = rows.const_data_ptr<int64_t>(),
                                      .labels_stride = rows.stride(0),
                                      .sums = sums.data_ptr<double>()},
                                     stream_of(read)));
    return;
  }
#endif
  double* const to = sums.data_ptr<double>();
  for (int64_t lane = 0; lane < lanes; ++lane) {
    const at::Tensor wide = logits.detach().select(0, lane).to(at::kDouble).contiguous();  // [B,K]
    const at::Tensor row = labels.select(0, lane).contiguous();                            // [B]
    const double* const values = wide.const_data_ptr<double>();
    const int64_t* const wanted = row.const_data_ptr<int64_t>();
    for (int64_t sample = 0; sample < batch; ++sample) {
      if (wanted[sample] == kIgnoredLabel) continue;
      const double* const own = values + sample * classes;
      to[lane] += cross_entropy(own, classes, wanted[sample]);
      to[lanes + lane] += largest(own, classes) == wanted[sample] ? 1 : 0;
      to[2 * lanes + lane] += 1;
    }
  }
}

}  // namespace espalier::lanes
