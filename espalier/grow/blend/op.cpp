#include "espalier/grow/blend/op.h"

#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>

#include "espalier/grow/blend/cpu.h"
#include "espalier/grow/seeds/each_lane.h"
#include "espalier/lanes/active.h"
#include "espalier/lanes/arguments.h"
#if ESPALIER_WITH_CUDA
#include "espalier/grow/blend/kernel.h"
#include "espalier/lanes/launch.h"
#endif

namespace espalier::grow {
namespace {

using lanes::for_kernel;
using lanes::stack_of;
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

#if ESPALIER_WITH_CUDA
cudaError_t launch(BlendPass pass, const BlendArgs& args, cudaStream_t stream) {
  switch (pass) {
    case BlendPass::kSelectForward:
      return launch_select_forward(args, stream);
    case BlendPass::kSelectBackward:
      return launch_select_backward(args, stream);
    case BlendPass::kBlendForward:
      return launch_blend_forward(args, stream);
    case BlendPass::kBlendBackward:
      break;
  }
  return launch_blend_backward(args, stream);
}
#endif

// args are where `on` is, which is written or of the same sizes.
void run(BlendPass pass, const BlendArgs& args, const at::Tensor& on) {
  if (on.numel() == 0) return;
#if ESPALIER_WITH_CUDA
  if (on.is_cuda()) {
    const c10::cuda::CUDAGuard guard(on.device());
    C10_CUDA_CHECK(launch(pass, args, lanes::stream_of(on)));
    return;
  }
#endif
  blend_by_cpu(pass, args);
}

struct SelectFunction : torch::autograd::Function<SelectFunction> {
  // Returns through, then one input per stack.
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& given, const Tables& tables) {
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
    run(BlendPass::kSelectForward, args, h);
    ctx->set_materialize_grads(false);
    ctx->save_for_backward(saved_of(tables));
    ctx->saved_data["format"] = static_cast<int64_t>(format);
    ctx->saved_data["sizes"] = h.sizes();
    return selected;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto any = std::find_if(grads.begin() + 1, grads.end(), [](const auto& g) { return g.defined(); });
    if (any == grads.end()) return {grads[0], at::Tensor()};
    const auto format = static_cast<MemoryFormat>(ctx->saved_data["format"].toInt());
    const bool is_ours = grads[0].defined() && is_sole(grads[0]);
    tensor_list kept;  // copies of foreign gradients, until the pass is done
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
    run(BlendPass::kSelectBackward, args, grad_h);
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

struct BlendFunction : torch::autograd::Function<BlendFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, at::TensorList given_seeds,
                            at::TensorList given_gates, const Tables& tables, const Gated& gated,
                            const Inputs& inputs) {
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
    run(BlendPass::kBlendForward, args, out);
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
    run(BlendPass::kBlendBackward, args, grad);
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

void check(const at::Tensor& h, const BlendTable& table, const char* function) {
  lanes::check_stacked(h, function, "h");
  const int64_t lanes = h.size(0);
  lanes::check_sizes(table.entry_of_lane, {lanes}, function, "entry_of_lane", "[L]");
  lanes::check_sizes(table.amplitude, {lanes}, function, "amplitude", "[L]");
  lanes::check_sizes(table.blend_operator, {lanes}, function, "blend_operator", "[L]");
  lanes::check_sizes(table.isolated, {lanes}, function, "isolated", "[L]");
  TORCH_CHECK(table.entries.dim() == 1 && table.entries.size(0) >= 1, function,
              ": entries: want at least one, got ", table.entries.sizes());
}

// What the passes count in 32 bits; on CUDA a grid has limits of its own.
void check_size(const at::Tensor& h, const char* function) {
  constexpr int64_t kMostValues = std::numeric_limits<int32_t>::max(), kMostLanes = 65535;
  const int64_t lane_values = h.size(0) > 0 ? h.numel() / h.size(0) : 0;
  TORCH_CHECK(lane_values <= kMostValues, function, ": h: want at most ", kMostValues,
              " values per lane, got ", h.sizes());
  TORCH_CHECK(!h.is_cuda() || h.size(0) <= kMostLanes, function, ": h: want at most ", kMostLanes,
              " lanes on CUDA, got ", h.sizes());
  TORCH_CHECK(lanes::has_kernel_type(h), function, ": h: want f32, f64, bf16 or f16, got ", h.scalar_type());
}

void check(const at::Tensor& h, const Grown& stack) {
  check(h, stack.table, "lane_blend");
  std::vector<int64_t> sizes = h.sizes().vec();
  sizes[0] = stack.table.entries.size(0);
  lanes::check_stacked(stack.seeds, "lane_blend", "seeds");
  lanes::check_sizes(stack.seeds, sizes, "lane_blend", "seeds", "[E,B,C,H,W]");
  TORCH_CHECK(stack.seeds.scalar_type() == h.scalar_type(), "lane_blend: seeds: want ", h.scalar_type(),
              " as h, got ", stack.seeds.scalar_type());
  if (stack.gates.defined())
    lanes::check_sizes(stack.gates, {sizes[0], sizes[1]}, "lane_blend", "gates", "[E,B]");
}

}  // namespace

Selected lane_select(const at::Tensor& h, const BlendTable& table) {
  const SelectedAll selected = lane_select(h, std::vector{table});
  return {selected.through, selected.inputs[0]};
}

at::Tensor lane_blend(const at::Tensor& h, const at::Tensor& seeds, const at::Tensor& gates,
                      const BlendTable& table) {
  return lane_blend(h, std::vector<Grown>{{seeds, gates, table}});
}

SelectedAll lane_select(const at::Tensor& h, const std::vector<BlendTable>& tables) {
  for (const BlendTable& table : tables) check(h, table, "lane_select");
  check_size(h, "lane_select");
  SelectedAll selected{.through = h};
  for (size_t first = 0; first < tables.size(); first += kMostStacks) {
    const size_t last = std::min(tables.size(), first + kMostStacks);
    const auto part = [&](size_t i) { return tables.begin() + static_cast<ptrdiff_t>(i); };
    const tensor_list results = SelectFunction::apply(selected.through, Tables{{part(first), part(last)}});
    selected.through = results[0];
    selected.inputs.insert(selected.inputs.end(), results.begin() + 1, results.end());
  }
  return selected;
}

at::Tensor lane_blend(at::Tensor h, const std::vector<Grown>& stacks) {
  for (const Grown& stack : stacks) check(h, stack);
  check_size(h, "lane_blend");
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
    through =
        BlendFunction::apply(through, at::TensorList(seeds), at::TensorList(gates), tables, gated, inputs);
  }
  return through;
}

}  // namespace espalier::grow
