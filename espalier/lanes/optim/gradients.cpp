#include "espalier/lanes/optim/gradients.h"

#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <numeric>

#include "espalier/lanes/stack.h"
#if ESPALIER_WITH_CUDA
#include <ATen/ops/empty.h>

#include "espalier/lanes/launch.h"
#include "espalier/lanes/optim/parameter_table.h"
#endif

namespace espalier::lanes {
namespace {

int64_t check(const std::vector<LaneParameter*>& parameters, const char* function) {
  TORCH_CHECK(!parameters.empty(), function, ": parameters: want at least one, got none");
  const int64_t lanes = parameters[0]->value().size(0);
  for (size_t i = 0; i < parameters.size(); ++i)
    TORCH_CHECK(parameters[i]->value().size(0) == lanes, function, ": parameters[", i, "]: want [", lanes,
                ",...], got ", parameters[i]->value().sizes());
  return lanes;
}

#if ESPALIER_WITH_CUDA
// Writes gradients that lie as their parameters do, lane by lane, in one launch for all numbers of lanes.
// Returns the others.
std::vector<size_t> write_alike(const std::vector<LaneParameter*>& parameters,
                                const torch::autograd::variable_list& grads) {
  std::vector<size_t> others;
  GradientCopies copies;
  at::Tensor any;  // one of those in `copies`
  const auto launch = [&] {
    if (copies.num_entries == 0) return;
    const c10::cuda::CUDAGuard guard(any.device());
    C10_CUDA_CHECK(launch_copy_gradients(copies, stream_of(any)));
    copies.num_entries = copies.num_blocks = 0;
  };
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor &to = parameters[i]->gradient(), &from = grads[i];
    const bool is_alike = from.defined() && to.is_cuda() && from.scalar_type() == to.scalar_type() &&
                          (to.scalar_type() == at::kFloat || to.scalar_type() == at::kDouble) &&
                          from.strides().slice(1) == to.strides().slice(1);
    if (!is_alike) {
      others.push_back(i);
      continue;
    }
    if (to.numel() == 0) continue;
    if (copies.num_entries > 0 && (copies.num_entries == kMostCopies || to.device() != any.device() ||
                                   to.scalar_type() != any.scalar_type()))
      launch();
    any = to;
    copies.is_double = to.scalar_type() == at::kDouble;
    copies.add({.to = to.data_ptr(),
                .from = from.const_data_ptr(),
                .to_stride = to.stride(0),
                .from_stride = from.stride(0),
                .values = to.numel() / to.size(0)},
               to.size(0));
  }
  launch();
  return others;
}
#endif

void write_gradients(const std::vector<LaneParameter*>& parameters,
                     const torch::autograd::variable_list& grads) {
#if ESPALIER_WITH_CUDA
  const std::vector<size_t> rest = write_alike(parameters, grads);
#else
  std::vector<size_t> rest(parameters.size());
  std::iota(rest.begin(), rest.end(), 0);
#endif
  for (const size_t i : rest) {
    if (grads[i].defined()) {
      parameters[i]->gradient().copy_(grads[i]);
    } else {
      parameters[i]->gradient().zero_();
    }
  }
}

}  // namespace

void lane_backward(const at::Tensor& losses, const std::vector<LaneParameter*>& parameters,
                   const at::Tensor& weights) {
  TORCH_CHECK(losses.dim() == 1, "lane_backward: losses: want [L], got ", losses.sizes());
  if (weights.defined()) {
    check_sizes(weights, losses.sizes(), "lane_backward", "weights", "[L]");
    TORCH_CHECK(weights.scalar_type() == losses.scalar_type() && weights.device() == losses.device(),
                "lane_backward: weights: want ", losses.scalar_type(), " on ", losses.device(),
                " as losses, got ", weights.scalar_type(), " on ", weights.device());
  }
  torch::autograd::variable_list leaves;
  for (const LaneParameter* parameter : parameters) leaves.push_back(parameter->value());
  const auto grads =
      torch::autograd::grad({losses}, leaves, {weights.defined() ? weights : at::ones_like(losses)},
                            /*retain_graph=*/std::nullopt, /*create_graph=*/false,
                            /*allow_unused=*/true);
  write_gradients(parameters, grads);
}

at::Tensor lane_gradient_norms(const std::vector<LaneParameter*>& parameters) {
  const int64_t lanes = check(parameters, "lane_gradient_norms");
  const c10::NoGradGuard no_grad;
  const at::Tensor& first = parameters[0]->value();
  const at::ScalarType type = sum_type(first);
#if ESPALIER_WITH_CUDA
  if (takes_update_kernel(parameters)) {
    const auto options = first.options().requires_grad(false);
    const at::Tensor partial = at::empty({static_cast<int64_t>(parameters.size()), lanes}, options);
    const at::Tensor norms = at::empty({lanes}, options);
    const auto stream = stream_of(first);
    for_tables(parameters, {}, [&](const ParameterTable& table, size_t from) {
      C10_CUDA_CHECK(
          launch_gradient_squares(table, partial.select(0, static_cast<int64_t>(from)).data_ptr(), stream));
    });
    if (lanes > 0)
      C10_CUDA_CHECK(launch_gradient_norms(partial.data_ptr(), static_cast<int>(parameters.size()),
                                           static_cast<int>(lanes), first.scalar_type() == at::kDouble,
                                           norms.data_ptr(), stream));
    return norms;
  }
#endif
  const at::Tensor squares = at::zeros({lanes}, first.options().dtype(type).requires_grad(false));
  // Lane by lane: how a sum over all lanes at once is shared out depends on how many there are.
  for (const LaneParameter* parameter : parameters)
    for (int64_t lane = 0; lane < lanes; ++lane)
      squares.select(0, lane).add_(parameter->gradient().select(0, lane).to(type).square().sum());
  return squares.sqrt_();
}

void clip_lane_gradients_(const std::vector<LaneParameter*>& parameters, const at::Tensor& norms,
                          const at::Tensor& max_norms) {
  const int64_t lanes = check(parameters, "clip_lane_gradients_");
  check_sizes(norms, {lanes}, "clip_lane_gradients_", "norms", "[L]");
  check_sizes(max_norms, {lanes}, "clip_lane_gradients_", "max_norms", "[L]");
  const c10::NoGradGuard no_grad;
  const at::Tensor most = max_norms.to(norms.scalar_type());
  scale_lane_gradients_(parameters, at::where(most > 0, (most / (norms + 1e-6)).clamp_max(1), 1));
}

void scale_lane_gradients_(const std::vector<LaneParameter*>& parameters, const at::Tensor& factors) {
  check_sizes(factors, {check(parameters, "scale_lane_gradients_")}, "scale_lane_gradients_", "factors",
              "[L]");
  const c10::NoGradGuard no_grad;
#if ESPALIER_WITH_CUDA
  if (takes_update_kernel(parameters)) {
    const at::Tensor wide = factors.to(parameters[0]->value().scalar_type()).contiguous();  // may be expanded
    for_tables(parameters, {}, [&](const ParameterTable& table, size_t) {
      C10_CUDA_CHECK(launch_scale_gradients(table, wide.const_data_ptr(), stream_of(wide)));
    });
    return;
  }
#endif
  for (const LaneParameter* parameter : parameters)
    parameter->gradient().mul_(per_lane(factors, parameter->gradient()));
}

}  // namespace espalier::lanes
