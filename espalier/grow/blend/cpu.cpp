#include "espalier/grow/blend/cpu.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "espalier/grow/blend/cpu_rows.h"
#include "espalier/tensor/parallel.h"

namespace espalier::grow {
namespace {

using lanes::KernelType;
using lanes::Stack;

// A lane, with what it holds.
struct HeldLane {
  int64_t lane = 0;
  Held held;
};

// Lanes of which forward and backward passes have to know: in use, and wanted.
template <class Wanted>
std::vector<HeldLane> lanes_of(const BlendArgs& args, const Wanted& is_wanted) {
  std::vector<HeldLane> all;
  for (int lane = 0; lane < args.lanes; ++lane) {
    if (args.active != nullptr && args.active[lane] < 0) continue;
    const Held held = held_by(args, lane);
    if (is_wanted(held)) all.push_back({lane, held});
  }
  return all;
}

// Calls body(lane, sample) for all samples of the lanes.
template <class Body>
void each_sample(const BlendArgs& args, const std::vector<HeldLane>& lanes, const Body& body) {
  const int64_t grain = std::max<int64_t>(1, kThreadValues / args.values);
  parallel_for(0, std::ssize(lanes) * args.batch, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(lanes[static_cast<size_t>(i / args.batch)], i % args.batch);
  });
}

template <class T>
T* values_at(const Stack& stack, int64_t lane, int64_t sample, int64_t values) {
  return static_cast<T*>(stack.data) + lane * stack.lane_stride + sample * values;
}

template <class T>
void copy_values(T* to, const T* from, int64_t values) {
  if (to != from) std::memcpy(to, from, static_cast<size_t>(values) * sizeof(T));
}

template <class T>
void zero_values(T* to, int64_t values) {
  std::memset(static_cast<void*>(to), 0, static_cast<size_t>(values) * sizeof(T));
}

template <class T>
class Passes {
 public:
  using W = blend_wide_t<T>;

  explicit Passes(const BlendArgs& args) : args_(args), values_(args.values), rows_(blend_rows<T>()) {}

  void run(BlendPass pass) const {
    switch (pass) {
      case BlendPass::kSelectForward:
        return select();
      case BlendPass::kSelectBackward:
        return select_back();
      case BlendPass::kBlendForward:
        return blend();
      case BlendPass::kBlendBackward:
        return blend_back();
    }
  }

 private:
  void select() const {
    const auto holders = lanes_of(args_, [](const Held& held) { return held.entry >= 0; });
    each_sample(args_, holders, [&](const HeldLane& at, int64_t sample) {
      copy_values(sample_of(args_.stacks[at.held.stack].seeds, at.held.entry, sample),
                  sample_of(args_.h, at.lane, sample), values_);
    });
  }

  void select_back() const {
    const auto adds = [&](const Held& held) {
      return held.entry >= 0 && held.rule != BlendRule::kIsolated &&
             args_.stacks[held.stack].seeds.data != nullptr;
    };
    const bool is_in_place = args_.grad_h.data == args_.out.data;
    const auto all = lanes_of(args_, [&](const Held& held) { return !is_in_place || adds(held); });
    each_sample(args_, all, [&](const HeldLane& at, int64_t sample) {
      const T* const through = args_.out.data == nullptr ? nullptr : sample_of(args_.out, at.lane, sample);
      const T* const input =
          adds(at.held) ? sample_of(args_.stacks[at.held.stack].seeds, at.held.entry, sample) : nullptr;
      T* const grad_h = sample_of(args_.grad_h, at.lane, sample);
      if (through != nullptr && input != nullptr) return rows_.add(through, input, values_, grad_h);
      if (through == nullptr && input == nullptr) return zero_values(grad_h, values_);
      copy_values(grad_h, input == nullptr ? through : input, values_);
    });
  }

  void blend() const {
    const bool is_in_place = args_.out.data == args_.h.data;
    const auto all =
        lanes_of(args_, [&](const Held& held) { return !is_in_place || is_arithmetic(held.rule); });
    each_sample(args_, all, [&](const HeldLane& at, int64_t sample) {
      const T* const h = sample_of(args_.h, at.lane, sample);
      T* const out = sample_of(args_.out, at.lane, sample);
      if (!is_arithmetic(at.held.rule)) return copy_values(out, h, values_);
      rows_.blend(at.held.rule, weight_of(at.held, sample), h,
                  sample_of(args_.stacks[at.held.stack].seeds, at.held.entry, sample), values_, out);
    });
  }

  void blend_back() const {
    const bool is_in_place = args_.grad_h.data == args_.out.data;
    const auto all = lanes_of(args_, [&](const Held& held) { return !is_in_place || held.entry >= 0; });
    each_sample(args_, all, [&](const HeldLane& at, int64_t sample) {
      const T* const grads = sample_of(args_.out, at.lane, sample);
      T* const grad_h = sample_of(args_.grad_h, at.lane, sample);
      if (at.held.entry < 0) return copy_values(grad_h, grads, values_);
      blend_sample_back(at, sample, grads, grad_h);
    });
  }

  void blend_sample_back(const HeldLane& at, int64_t sample, const T* grads, T* grad_h) const {
    const auto [lane, held] = at;
    const StackLanes& stack = args_.stacks[held.stack];
    T* const grad_seeds = sample_of(stack.grad_seeds, held.entry, sample);
    double grad_gate = 0;
    if (is_arithmetic(held.rule)) {
      const T* const h = stack.inputs.data == nullptr ? sample_of(args_.h, lane, sample)
                                                      : sample_of(stack.inputs, held.entry, sample);
      const double sum =
          rows_.blend_back(held.rule, weight_of(held, sample), grads, h,
                           sample_of(stack.seeds, held.entry, sample), values_, grad_h, grad_seeds);
      if (held.gated) grad_gate = sum * static_cast<double>(held.blend.amplitude);
    } else {
      copy_values(grad_h, grads, values_);
      if (held.rule == BlendRule::kIsolated)
        copy_values(grad_seeds, grads, values_);
      else
        zero_values(grad_seeds, values_);
    }
    if (stack.grad_gates.data != nullptr)
      *values_at<W>(stack.grad_gates, held.entry, sample, 1) = static_cast<W>(grad_gate);
  }

  // a, or a g.
  W weight_of(const Held& held, int64_t sample) const {
    const auto a = static_cast<W>(held.blend.amplitude);
    return held.gated ? a * *values_at<W>(args_.stacks[held.stack].gates, held.entry, sample, 1) : a;
  }

  T* sample_of(const Stack& stack, int64_t lane, int64_t sample) const {
    return values_at<T>(stack, lane, sample, values_);
  }

  const BlendArgs& args_;
  int64_t values_;
  const BlendRows<T>& rows_;
};

}  // namespace

void blend_by_cpu(BlendPass pass, const BlendArgs& args) {
  switch (args.type) {
    case KernelType::kF32:
      return Passes<float>(args).run(pass);
    case KernelType::kF64:
      return Passes<double>(args).run(pass);
    case KernelType::kBf16:
      return Passes<c10::BFloat16>(args).run(pass);
    case KernelType::kF16:
      return Passes<c10::Half>(args).run(pass);
  }
}

}  // namespace espalier::grow
