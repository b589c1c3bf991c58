#include "espalier/grow/blend/op.h"

#include <ATen/ops/index_select.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/seeds/each_lane.h"
#if ESPALIER_WITH_CUDA
#include "espalier/grow/blend/op_cuda.h"
#endif

namespace espalier::grow {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// A stack as rows of one lane each: every lane is dense.
at::Tensor rows(const at::Tensor& stacked) {
  const int64_t values = c10::multiply_integers(stacked.sizes().slice(1));
  return stacked.as_strided({stacked.size(0), values}, {stacked.stride(0), 1});
}

// [N,...] with lane places[n] of the stack, in its layout; of lane 0 where the place is none: never read.
at::Tensor gathered(const at::Tensor& given, const at::Tensor& places) {
  // Stacks of images were checked; gates come as they are.
  const at::Tensor stacked = given.dim() == 5 || given.select(0, 0).is_contiguous()
                                 ? given
                                 : given.clone(c10::MemoryFormat::Contiguous);
  std::vector<int64_t> sizes = stacked.sizes().vec();
  sizes[0] = places.size(0);
  const at::Tensor out =
      lanes::empty_lanes(sizes, stacked.options().requires_grad(false),
                         stacked.dim() == 5 ? lanes::format_of(stacked) : MemoryFormat::kChannelsLast);
  at::Tensor to = rows(out);
  at::index_select_out(to, rows(stacked), 0, places.clamp_min(0));
  return out;
}

// The same, zeros where the place is none.
at::Tensor gathered_or_zero(const at::Tensor& stacked, const at::Tensor& places) {
  const at::Tensor out = gathered(stacked, places);
  out.masked_fill_(lanes::per_lane(places < 0, out), 0);
  return out;
}

struct SelectFunction : torch::autograd::Function<SelectFunction> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& h, const BlendTable& table) {
    ctx->set_materialize_grads(false);
    ctx->save_for_backward({table.entry_of_lane, table.isolated});
    ctx->saved_data["format"] = static_cast<int64_t>(lanes::format_of(h));
    return {same(h), gathered(h, table.entries)};
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    if (!grads[1].defined()) return {grads[0], at::Tensor()};
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &entry_of_lane = saved[0], &isolated = saved[1];
    const auto format = static_cast<MemoryFormat>(ctx->saved_data["format"].toInt());
    const at::Tensor grad_seeds = gathered(lanes::as_lanes(grads[1], format), entry_of_lane);  // [L,...]
    const at::Tensor adds = (entry_of_lane >= 0).logical_and(isolated.logical_not());          // [L]
    if (!grads[0].defined())
      return {grad_seeds.masked_fill_(lanes::per_lane(~adds, grad_seeds), 0), at::Tensor()};
    at::Tensor grad_h = lanes::empty_lanes(grads[0].sizes(), grads[0].options(), format);
    each_lane(grad_h, [&](auto cut, int64_t) {
      at::Tensor to = cut(grad_h);
      const at::Tensor through = cut(grads[0]);
      at::where_out(to, lanes::per_lane(cut(adds), to), through + cut(grad_seeds), through);
    });
    return {grad_h, at::Tensor()};
  }
};

// Who is blended by which rule; [L] bool each.
struct Rules {
  at::Tensor blended;     // by arithmetic; else h itself
  at::Tensor isolated;    // h itself, the seed learns
  at::Tensor multiplies;  // MULTIPLY
  at::Tensor gated;       // GATE

  explicit Rules(const BlendTable& table) {
    const at::Tensor here = table.entry_of_lane >= 0;
    isolated = here.logical_and(table.isolated);
    blended = here.logical_and(table.isolated.logical_not()).logical_and_(table.amplitude != 0);
    multiplies = table.blend_operator == static_cast<int>(BlendOperator::kMultiply);
    gated = table.blend_operator == static_cast<int>(BlendOperator::kGate);
  }

  // On the CPU, where a look costs nothing: whether a lane's arithmetic can be left out.
  bool may_skip(int64_t lane) const { return lane >= 0 && !blended.const_data_ptr<bool>()[lane]; }
};

// a, and a g where the lane is gated: [L,B,1,1,1].
at::Tensor weights(const at::Tensor& amplitude, const at::Tensor& gates, const at::Tensor& gated,
                   const at::Tensor& like) {
  const at::Tensor a = lanes::per_lane(amplitude, like);
  if (!gates.defined()) return a;
  const at::Tensor g = gates.to(like.scalar_type()).view({gates.size(0), gates.size(1), 1, 1, 1});
  return at::where(lanes::per_lane(gated, like), a * g, a);
}

struct BlendFunction : torch::autograd::Function<BlendFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& h, const at::Tensor& seeds,
                            const std::optional<at::Tensor>& gates, const BlendTable& table) {
    const Rules rules(table);
    const at::Tensor s = gathered(seeds, table.entry_of_lane);                          // [L,B,C,H,W]
    const at::Tensor g = gates ? gathered(*gates, table.entry_of_lane) : at::Tensor();  // [L,B]
    at::Tensor out = stacked_like(h);
    each_lane(h, [&](auto cut, int64_t lane) {
      at::Tensor to = cut(out);
      if (rules.may_skip(lane)) {
        to.copy_(cut(h));
        return;
      }
      const at::Tensor from = wide(cut(h)), difference = wide(cut(s)) - from;
      const at::Tensor weight = weights(cut(table.amplitude), cut(g), cut(rules.gated), from);
      const at::Tensor sum = from + weight * difference, product = from * (1 + weight * difference.tanh());
      const at::Tensor value = at::where(lanes::per_lane(cut(rules.multiplies), from), product, sum);
      at::where_out(to, lanes::per_lane(cut(rules.blended), from), value.to(h.scalar_type()), cut(h));
    });
    ctx->save_for_backward({h, seeds, gates ? *gates : at::Tensor(), table.entries, table.entry_of_lane,
                            table.amplitude, table.blend_operator, table.isolated});
    return out;
  }

  // With G the gradient of the output, d = s - h, w the weight and t = tanh(d):
  //   ADD, GATE  h: G (1 - w),  s: G w,  g: a sum of G d;
  //   MULTIPLY   h: G (1 + w t - h w (1 - t^2)),  s: G h w (1 - t^2).
  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &h = saved[0], &seeds = saved[1], &gates = saved[2];
    const BlendTable table{saved[3], saved[4], saved[5], saved[6], saved[7]};
    const Rules rules(table);
    const at::Tensor s = gathered(seeds, table.entry_of_lane);
    const at::Tensor g = gates.defined() ? gathered(gates, table.entry_of_lane) : at::Tensor();
    at::Tensor grad_h = stacked_like(h), grad_s = stacked_like(h), grad_g;  // [L,...]
    if (g.defined()) grad_g = stacked_like(g);
    each_lane(h, [&](auto cut, int64_t lane) {
      at::Tensor to_h = cut(grad_h), to_s = cut(grad_s), to_g = cut(grad_g);
      const at::Tensor sent = cut(grads[0]);
      // Not masked_fill(), which lays its result out as NCHW.
      const at::Tensor learns = at::where(lanes::per_lane(cut(rules.isolated), sent), sent, 0);
      if (rules.may_skip(lane)) {
        to_h.copy_(sent);
        to_s.copy_(learns);
        if (to_g.defined()) to_g.zero_();
        return;
      }
      const at::Tensor grad = wide(sent), from = wide(cut(h)), difference = wide(cut(s)) - from;
      const at::Tensor weight = weights(cut(table.amplitude), cut(g), cut(rules.gated), from);
      const at::Tensor t = difference.tanh(), slope = from * weight * (1 - t * t);
      const at::Tensor multiplies = lanes::per_lane(cut(rules.multiplies), from);
      const at::Tensor blended = lanes::per_lane(cut(rules.blended), from);
      const at::Tensor by_h = grad * at::where(multiplies, 1 + weight * t - slope, 1 - weight);
      const at::Tensor by_s = grad * at::where(multiplies, slope, weight);
      const auto type = h.scalar_type();
      at::where_out(to_h, blended, by_h.to(type), sent);
      at::where_out(to_s, blended, by_s.to(type), learns);
      if (!to_g.defined()) return;
      const auto sums = lanes::sum_type(h);
      const at::Tensor by_g = (grad.to(sums) * difference.to(sums)).sum({2, 3, 4}) *
                              cut(table.amplitude).to(sums).unsqueeze(1);  // [L,B]
      to_g.copy_(by_g.masked_fill(~cut(rules.blended).logical_and(cut(rules.gated)).unsqueeze(1), 0));
    });
    return {grad_h, gathered_or_zero(grad_s, table.entries),
            grad_g.defined() ? gathered_or_zero(grad_g, table.entries) : at::Tensor(), at::Tensor()};
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
#if ESPALIER_WITH_CUDA
  if (takes_blend_cuda(h)) return select_by_cuda(h, tables);
#endif
  // One after the other: each op has one consumer, so no gradient is left for autograd to add.
  SelectedAll all{.through = h};
  for (const BlendTable& table : tables) {
    const tensor_list selected = SelectFunction::apply(all.through, table);
    all.through = selected[0];
    all.inputs.push_back(selected[1]);
  }
  return all;
}

at::Tensor lane_blend(at::Tensor h, const std::vector<Grown>& stacks) {
  for (const Grown& stack : stacks) check(h, stack);
#if ESPALIER_WITH_CUDA
  if (takes_blend_cuda(h)) return blend_by_cuda(std::move(h), stacks);
#endif
  at::Tensor through = std::move(h);
  for (const Grown& stack : stacks)
    through = BlendFunction::apply(
        through, stack.seeds, stack.gates.defined() ? std::optional(stack.gates) : std::nullopt, stack.table);
  return through;
}

}  // namespace espalier::grow
