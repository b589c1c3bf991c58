#if ESPALIER_WITH_CUDA
#include "espalier/grow/blend/op_cuda.h"

#include <torch/csrc/autograd/custom_function.h>

#include "espalier/grow/blend/kernel.h"
#include "espalier/grow/seeds/each_lane.h"
#include "espalier/lanes/active.h"
#include "espalier/lanes/launch.h"
#include "espalier/lanes/most_lanes.h"

namespace espalier::grow {
namespace {

using lanes::for_kernel;
using lanes::stack_of;
using lanes::stream_of;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// What autograd passes by: the tables of a slot's stacks.
struct Tables {
  std::vector<BlendTable> all;
};

int32_t values_of_sample(const at::Tensor& stacked) {
  return static_cast<int32_t>(stacked.size(2) * stacked.size(3) * stacked.size(4));
}

// Everything but the stacks' own tensors and what is written.
BlendArgs args_of(const at::Tensor& h, const Tables& tables) {
  const BlendTable& slot = tables.all.front();
  BlendArgs args;
  args.lanes = static_cast<int32_t>(h.size(0));
  args.batch = static_cast<int32_t>(h.size(1));
  args.values = values_of_sample(h);
  args.type = lanes::kernel_type(h);
  args.amplitude = slot.amplitude.const_data_ptr<float>();
  args.blend_operator = slot.blend_operator.const_data_ptr<uint8_t>();
  args.isolated = slot.isolated.const_data_ptr<bool>();
  args.num_stacks = static_cast<int32_t>(tables.all.size());
  for (size_t i = 0; i < tables.all.size(); ++i)
    args.stacks[i].entry_of_lane = tables.all[i].entry_of_lane.const_data_ptr<int64_t>();
  return args;
}

// A slot's coefficients, then where each stack's lanes are: what a backward pass needs of tables.
constexpr size_t kNumCoefficients = 3;

tensor_list saved_of(const Tables& tables) {
  const BlendTable& slot = tables.all.front();
  tensor_list saved{slot.amplitude, slot.blend_operator, slot.isolated};
  for (const BlendTable& table : tables.all) saved.push_back(table.entry_of_lane);
  return saved;
}

// Back from the first of the saved tensors.
Tables tables_of(const tensor_list& saved, int64_t num_stacks) {
  Tables tables;
  for (int64_t i = 0; i < num_stacks; ++i)
    tables.all.push_back({.entry_of_lane = saved[kNumCoefficients + static_cast<size_t>(i)],
                          .amplitude = saved[0],
                          .blend_operator = saved[1],
                          .isolated = saved[2]});
  return tables;
}

// Whether nobody else holds a tensor or its memory, and no lane shares another's (as in an expanded one), so
// that it may be written over.
bool is_sole(const at::Tensor& tensor) {
  return tensor.use_count() == 1 && tensor.storage().use_count() == 1 &&
         (tensor.size(0) <= 1 || tensor.stride(0) * tensor.size(0) >= tensor.numel());
}

struct SelectKernelFunction : torch::autograd::Function<SelectKernelFunction> {
  // Returns through, then one input per stack.
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& given, const Tables& tables) {
    const c10::cuda::CUDAGuard guard(given.device());
    const MemoryFormat format = lanes::format_of(given);
    const at::Tensor h = for_kernel(given, format);
    tensor_list selected{same(given)};
    BlendArgs args = args_of(h, tables);
    args.h = stack_of(h);
    const at::Tensor active = lanes::active_entries(h.size(0));
    args.active = lanes::entries_of(active);
    for (size_t i = 0; i < tables.all.size(); ++i) {
      std::vector<int64_t> sizes = h.sizes().vec();
      sizes[0] = tables.all[i].entries.size(0);
      selected.push_back(lanes::empty_lanes(sizes, h.options().requires_grad(false), format));
      args.stacks[i].seeds = stack_of(selected.back());
    }
    if (h.numel() > 0) C10_CUDA_CHECK(launch_select_forward(args, stream_of(h)));
    ctx->set_materialize_grads(false);
    ctx->save_for_backward(saved_of(tables));
    ctx->saved_data["format"] = static_cast<int64_t>(format);
    ctx->saved_data["sizes"] = h.sizes();
    return selected;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto any = std::find_if(grads.begin() + 1, grads.end(), [](const auto& g) { return g.defined(); });
    if (any == grads.end()) return {grads[0], at::Tensor()};
    const c10::cuda::CUDAGuard guard(any->device());
    const auto format = static_cast<MemoryFormat>(ctx->saved_data["format"].toInt());
    const bool is_ours = grads[0].defined() && is_sole(grads[0]);
    tensor_list kept;  // copies of foreign gradients, until the kernel is launched
    const auto keep = [&](const at::Tensor& grad) {
      kept.push_back(grad.defined() ? for_kernel(grad, format) : at::Tensor());
      return stack_of(kept.back());
    };
    const lanes::Stack through = keep(grads[0]);
    const at::Tensor grad_h =
        is_ours ? kept.front()
                : lanes::empty_lanes(ctx->saved_data["sizes"].toIntVector(), any->options(), format);
    const tensor_list saved = ctx->get_saved_variables();
    BlendArgs args = args_of(grad_h, tables_of(saved, std::ssize(grads) - 1));
    args.out = through;
    for (size_t i = 1; i < grads.size(); ++i) args.stacks[i - 1].seeds = keep(grads[i]);
    args.grad_h = stack_of(grad_h);
    if (grad_h.numel() > 0) C10_CUDA_CHECK(launch_select_backward(args, stream_of(grad_h)));
    return {grad_h, at::Tensor()};
  }
};

// gates: those that are defined, of the stacks that `gate_of` numbers; -1 where a stack has none.
struct Gated {
  std::vector<int64_t> gate_of;
};

// What the stacks were given, where h is written over: one per stack, or none.
struct Inputs {
  tensor_list all;
};

struct BlendKernelFunction : torch::autograd::Function<BlendKernelFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, at::TensorList given_seeds,
                            at::TensorList given_gates, const Tables& tables, const Gated& gated,
                            const Inputs& inputs) {
    const c10::cuda::CUDAGuard guard(given.device());
    const MemoryFormat format = lanes::format_of(given);
    const bool is_replaced = !inputs.all.empty();
    const at::Tensor h = for_kernel(given, format), out = is_replaced ? same(h) : stacked_like(h);
    tensor_list saved = saved_of(tables);
    saved.push_back(is_replaced ? at::Tensor() : h);
    for (const at::Tensor& seeds : given_seeds) saved.push_back(for_kernel(seeds, format));
    for (const at::Tensor& gates : given_gates)
      saved.push_back(lanes::dense_lanes(lanes::as_wide(gates, lanes::wide_type(h))));
    for (const at::Tensor& input : inputs.all) saved.push_back(for_kernel(input.detach(), format));
    BlendArgs args = args_of(h, saved, tables, gated);
    args.h = stack_of(h);
    args.out = stack_of(out);
    const at::Tensor active = lanes::active_entries(h.size(0));
    args.active = lanes::entries_of(active);
    if (out.numel() > 0) C10_CUDA_CHECK(launch_blend_forward(args, stream_of(h)));
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["format"] = static_cast<int64_t>(format);
    ctx->saved_data["gate_of"] = gated.gate_of;
    ctx->saved_data["num_gates"] = std::ssize(given_gates);
    ctx->saved_data["gate_type"] = given_gates.empty() ? at::kFloat : given_gates.front().scalar_type();
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const bool is_ours = is_sole(grads[0]);
    const tensor_list saved = ctx->get_saved_variables();
    const Gated gated{ctx->saved_data["gate_of"].toIntVector()};
    const Tables tables = tables_of(saved, std::ssize(gated.gate_of));
    const size_t num_stacks = tables.all.size(), first = kNumCoefficients + num_stacks;  // h, seeds, gates
    const size_t num_gates = static_cast<size_t>(ctx->saved_data["num_gates"].toInt());
    const c10::cuda::CUDAGuard guard(grads[0].device());
    const at::Tensor grad =
        for_kernel(grads[0], static_cast<MemoryFormat>(ctx->saved_data["format"].toInt()));
    // The gradients in the order of h, seeds and gates. Those of empty entries are not written.
    tensor_list gradients{is_ours ? grad : stacked_like(grad)};
    for (size_t i = 0; i < num_stacks + num_gates; ++i)
      gradients.push_back(stacked_like(saved[first + 1 + i]));
    BlendArgs args = args_of(grad, saved, tables, gated);
    args.h = stack_of(saved[first]);
    args.out = stack_of(grad);
    args.grad_h = stack_of(gradients[0]);
    for (size_t i = 0; i < num_stacks; ++i) {
      if (!saved[first].defined())
        args.stacks[i].inputs = stack_of(saved[first + 1 + num_stacks + num_gates + i]);
      args.stacks[i].grad_seeds = stack_of(gradients[1 + i]);
      if (gated.gate_of[i] >= 0)
        args.stacks[i].grad_gates =
            stack_of(gradients[1 + num_stacks + static_cast<size_t>(gated.gate_of[i])]);
    }
    if (grad.numel() > 0) C10_CUDA_CHECK(launch_blend_backward(args, stream_of(grad)));
    for (size_t i = 1 + num_stacks; i < gradients.size(); ++i)
      gradients[i] = lanes::as_wide(gradients[i], ctx->saved_data["gate_type"].toScalarType());
    gradients.resize(gradients.size() + 3);  // tables, gated, inputs
    return gradients;
  }

 private:
  // Everything but h and what is written. like: of h's sizes and type.
  static BlendArgs args_of(const at::Tensor& like, const tensor_list& saved, const Tables& tables,
                           const Gated& gated) {
    const size_t num_stacks = tables.all.size(), first = kNumCoefficients + num_stacks;
    BlendArgs args = grow::args_of(like, tables);
    for (size_t i = 0; i < num_stacks; ++i) {
      args.stacks[i].seeds = stack_of(saved[first + 1 + i]);
      if (gated.gate_of[i] >= 0)
        args.stacks[i].gates =
            stack_of(saved[first + 1 + num_stacks + static_cast<size_t>(gated.gate_of[i])]);
    }
    return args;
  }
};

}  // namespace

bool takes_blend_cuda(const at::Tensor& h) {
  return h.is_cuda() && lanes::has_kernel_type(h) && h.size(0) <= lanes::kMostLanesOnCuda &&
         (h.size(0) == 0 || h.numel() / h.size(0) < int64_t{1} << 31);
}

SelectedAll select_by_cuda(const at::Tensor& h, const std::vector<BlendTable>& tables) {
  SelectedAll selected{.through = h};
  for (size_t first = 0; first < tables.size(); first += kMostStacks) {
    const size_t last = std::min(tables.size(), first + kMostStacks);
    const auto part = [&](size_t i) { return tables.begin() + static_cast<ptrdiff_t>(i); };
    const tensor_list results =
        SelectKernelFunction::apply(selected.through, Tables{{part(first), part(last)}});
    selected.through = results[0];
    selected.inputs.insert(selected.inputs.end(), results.begin() + 1, results.end());
  }
  return selected;
}

at::Tensor blend_by_cuda(at::Tensor h, const std::vector<Grown>& stacks) {
  at::Tensor through = std::move(h);
  for (size_t first = 0; first < stacks.size(); first += kMostStacks) {
    const bool is_replaced = is_sole(through);
    tensor_list seeds, gates;
    Tables tables;
    Gated gated;
    Inputs inputs;
    for (size_t i = first; i < std::min(stacks.size(), first + kMostStacks); ++i) {
      tables.all.push_back(stacks[i].table);
      seeds.push_back(stacks[i].seeds);
      gated.gate_of.push_back(stacks[i].gates.defined() ? std::ssize(gates) : -1);
      if (stacks[i].gates.defined()) gates.push_back(stacks[i].gates);
      if (is_replaced && stacks[i].input.defined()) inputs.all.push_back(stacks[i].input);
    }
    if (inputs.all.size() < seeds.size()) inputs.all.clear();
    through = BlendKernelFunction::apply(through, at::TensorList(seeds), at::TensorList(gates), tables, gated,
                                         inputs);
  }
  return through;
}

}  // namespace espalier::grow
#endif  // ESPALIER_WITH_CUDA
