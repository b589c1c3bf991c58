#include "espalier/lanes/norm/group_cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/lanes/active.h"
#include "espalier/lanes/arguments.h"
#include "espalier/lanes/norm/cpu_parts.h"
#include "espalier/lanes/norm/cpu_rows.h"
#include "espalier/lanes/stack.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// What all lanes share; see NormRows for the period.
struct GroupSizes {
  GroupSizes(const at::Tensor& x, int64_t groups)
      : batch(x.size(1)),
        channels(x.size(2)),
        groups(groups),
        depth(channels / groups),
        pixels(x.size(3) * x.size(4)),
        values(pixels * channels),
        period(channels * std::clamp<int64_t>(kGroupPeriodValues / channels, 1, pixels)) {}

  // Of which a statistic is taken.
  double count() const { return static_cast<double>(pixels * depth); }
  size_t group_of(int64_t channel) const { return static_cast<size_t>(channel / depth); }

  static constexpr int64_t kGroupPeriodValues = 128;  // at least, where samples have as many

  int64_t batch, channels, groups, depth, pixels, values, period;
};

// Where one lane's statistics lie; mean, scale (one over the deviation): [L,B,G] f64.
double* statistic_of(const at::Tensor& statistics, const GroupSizes& sizes, int64_t lane, int64_t sample) {
  return statistics.data_ptr<double>() + (lane * sizes.batch + sample) * sizes.groups;
}

// What a thread works in, made once per part: sums of a sample and what its channels are multiplied with.
template <class T>
class GroupWork {
 public:
  GroupWork(const GroupSizes& sizes, bool is_rectified)
      : acc(static_cast<size_t>(sizes.period)),
        more_acc(acc.size()),
        channels(static_cast<size_t>(sizes.channels)),
        more_channels(channels.size()),
        sizes_(sizes),
        rectified_(static_cast<size_t>(is_rectified ? sizes.values : 0)) {}

  // The sample as the norm sees it.
  const T* seen(const T* x) {
    if (rectified_.empty()) return x;
    rows_.rectify(x, sizes_.values, rectified_.data());
    return rectified_.data();
  }

  // value(channel) for each, over the period.
  template <class To, class Value>
  void repeat(std::vector<To>& to, const Value& value) const {
    to.resize(static_cast<size_t>(sizes_.period));
    for (int64_t c = 0; c < sizes_.channels; ++c) to[static_cast<size_t>(c)] = static_cast<To>(value(c));
    for (size_t i = static_cast<size_t>(sizes_.channels); i < to.size(); ++i)
      to[i] = to[i - static_cast<size_t>(sizes_.channels)];
  }

  std::vector<double> acc, more_acc;            // [period]
  std::vector<double> channels, more_channels;  // [C]

 private:
  const GroupSizes& sizes_;
  const NormRows<T>& rows_ = norm_rows<T>();
  std::vector<T> rectified_;  // [sample], or empty
};

// Per group the sum over its channels of what value(channel) says.
template <class Value>
void sum_groups(const GroupSizes& sizes, const Value& value, double* to) {
  std::fill(to, to + sizes.groups, 0.0);
  for (int64_t c = 0; c < sizes.channels; ++c) to[sizes.group_of(c)] += value(static_cast<size_t>(c));
}

struct GroupForward {
  at::Tensor x;             // [L,B,C,H,W]
  at::Tensor weight, bias;  // [L,C] f64
  at::Tensor residual;      // as x, or undefined
  at::Tensor out;           // as x
  at::Tensor mean, scale;   // [L,B,G] f64; written
};

template <class T>
void normalise_groups(const NormParts& parts, const GroupSizes& sizes, const GroupForward& given,
                      const GroupNormCall& call) {
  const NormRows<T>& rows = norm_rows<T>();
  const int64_t values = sizes.values, period = sizes.period;
  parts.each([&](const NormPart& part) {
    GroupWork<T> work(sizes, call.is_rectified);
    std::vector<double> a, b;  // [period]
    const double* const weight = lane_of<const double>(given.weight, part.lane);
    const double* const bias = lane_of<const double>(given.bias, part.lane);
    for (int64_t sample = part.first; sample < part.last; ++sample) {
      const T* const x = work.seen(lane_of<const T>(given.x, part.lane) + sample * values);
      double* const mean = statistic_of(given.mean, sizes, part.lane, sample);
      double* const scale = statistic_of(given.scale, sizes, part.lane, sample);
      const auto sum_channels = [&](double* to) {
        fold(work.acc, sizes.channels, work.channels.data());
        sum_groups(sizes, [&](size_t c) { return work.channels[c]; }, to);
      };
      std::ranges::fill(work.acc, 0.0);
      rows.add(x, values, period, work.acc.data());
      sum_channels(mean);
      for (int64_t g = 0; g < sizes.groups; ++g) mean[g] /= sizes.count();
      work.repeat(a, [&](int64_t c) { return mean[sizes.group_of(c)]; });
      std::ranges::fill(work.acc, 0.0);
      rows.add_squares(x, values, period, a.data(), work.acc.data());
      sum_channels(scale);
      for (int64_t g = 0; g < sizes.groups; ++g)
        scale[g] = 1 / std::sqrt(scale[g] / sizes.count() + call.eps);
      const auto factor = [&](int64_t c) { return weight[c] * scale[sizes.group_of(c)]; };
      work.repeat(a, factor);
      work.repeat(b, [&](int64_t c) { return bias[c] - mean[sizes.group_of(c)] * factor(c); });
      const T* const residual =
          given.residual.defined() ? lane_of<const T>(given.residual, part.lane) + sample * values : nullptr;
      rows.apply(x, values, period, a.data(), b.data(), residual, call.activation == Activation::kRelu,
                 lane_of<T>(given.out, part.lane) + sample * values);
    }
  });
}

struct GroupBackward {
  at::Tensor grad, x;      // [L,B,C,H,W]
  at::Tensor out;          // as x where a ReLU comes after, else undefined
  at::Tensor weight;       // [L,C] f64
  at::Tensor mean, scale;  // [L,B,G] f64
  bool is_rectified = false;
  at::Tensor grad_x;                  // as x, or undefined; written
  at::Tensor grad_weight, grad_bias;  // [L,C] f64; written
};

// With g the gradient past the ReLU, m the mean and s the scale of a group of n values, w the weight:
//   weight: s times the sum of g (x - m), bias: the sum of g;
//   x: s (g w - mean of g w - (x - m) s s mean of g w (x - m)).
template <class T>
void write_group_gradients(const NormParts& parts, const GroupSizes& sizes, const GroupBackward& given) {
  const NormRows<T>& rows = norm_rows<T>();
  const int64_t values = sizes.values, period = sizes.period;
  const at::Tensor sums = parts.sums(given.x.size(0), 2);
  parts.each([&](const NormPart& part) {
    GroupWork<T> work(sizes, given.is_rectified);
    std::vector<double> means;                         // [period]
    std::vector<float> mean_of, shift, slope, factor;  // [period]
    std::vector<float> gradients(static_cast<size_t>(values));
    std::vector<double> sums_of_group(static_cast<size_t>(sizes.groups)), dots_of_group(sums_of_group);
    const double* const weight = lane_of<const double>(given.weight, part.lane);
    double* const bias_sums = parts.sum(sums, part, 0);
    double* const weight_sums = parts.sum(sums, part, 1);
    std::fill(bias_sums, bias_sums + sizes.channels, 0.0);
    std::fill(weight_sums, weight_sums + sizes.channels, 0.0);
    for (int64_t sample = part.first; sample < part.last; ++sample) {
      const auto at_sample = [&](const at::Tensor& stacked) {
        return lane_of<const T>(stacked, part.lane) + sample * values;
      };
      const T* const x = work.seen(at_sample(given.x));
      const double* const mean = statistic_of(given.mean, sizes, part.lane, sample);
      const double* const scale = statistic_of(given.scale, sizes, part.lane, sample);
      rows.mask(at_sample(given.grad), given.out.defined() ? at_sample(given.out) : nullptr, values,
                gradients.data());
      work.repeat(means, [&](int64_t c) { return mean[sizes.group_of(c)]; });
      std::ranges::fill(work.acc, 0.0);
      std::ranges::fill(work.more_acc, 0.0);
      rows.add_gradients(gradients.data(), x, values, period, means.data(), work.acc.data(),
                         work.more_acc.data());
      fold(work.acc, sizes.channels, work.channels.data());
      fold(work.more_acc, sizes.channels, work.more_channels.data());
      for (int64_t c = 0; c < sizes.channels; ++c) {
        bias_sums[c] += work.channels[static_cast<size_t>(c)];
        weight_sums[c] += work.more_channels[static_cast<size_t>(c)] * scale[sizes.group_of(c)];
      }
      if (!given.grad_x.defined()) continue;
      sum_groups(sizes, [&](size_t c) { return weight[c] * work.channels[c]; }, sums_of_group.data());
      sum_groups(sizes, [&](size_t c) { return weight[c] * work.more_channels[c]; }, dots_of_group.data());
      const double n = sizes.count();
      work.repeat(mean_of, [&](int64_t c) { return mean[sizes.group_of(c)]; });
      work.repeat(factor, [&](int64_t c) { return weight[c] * scale[sizes.group_of(c)]; });
      work.repeat(shift, [&](int64_t c) {
        const size_t g = sizes.group_of(c);
        return scale[g] * sums_of_group[g] / n;
      });
      work.repeat(slope, [&](int64_t c) {
        const size_t g = sizes.group_of(c);
        return scale[g] * scale[g] * scale[g] * dots_of_group[g] / n;
      });
      rows.grad_x_group(gradients.data(), x, values, period, mean_of.data(), shift.data(), slope.data(),
                        factor.data(), given.is_rectified,
                        lane_of<T>(given.grad_x, part.lane) + sample * values);
    }
  });
  for (const int64_t lane : parts.lanes) {
    std::ranges::copy(parts.total(sums, lane, 0), lane_of<double>(given.grad_bias, lane));
    std::ranges::copy(parts.total(sums, lane, 1), lane_of<double>(given.grad_weight, lane));
  }
}

// [L,C] in double, channels side by side.
at::Tensor in_double(const at::Tensor& parameter) {
  return dense_rows(as_wide(parameter, at::kDouble));
}

struct GroupNormCpuFunction : torch::autograd::Function<GroupNormCpuFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const GroupNormCall& call) {
    const at::Tensor x = as_lanes(given, MemoryFormat::kChannelsLast), entries = active_entries(x.size(0));
    const at::Tensor statistics = at::empty({2, x.size(0), x.size(1), call.groups}, at::kDouble);
    const GroupForward made{
        .x = x,
        .weight = in_double(weight),
        .bias = in_double(bias),
        .residual = residual ? as_lanes(*residual, MemoryFormat::kChannelsLast) : at::Tensor(),
        .out = empty_lanes(x.sizes(), x.options()),
        .mean = statistics.select(0, 0),
        .scale = statistics.select(0, 1)};
    const NormParts parts(x, entries);
    const GroupSizes sizes(x, call.groups);
    AT_DISPATCH_SWITCH(
        x.scalar_type(), "lane_group_norm", AT_DISPATCH_CASE(at::kFloat, [&] {
          normalise_groups<scalar_t>(parts, sizes, made, call);
        }) AT_DISPATCH_CASE(at::kBFloat16, [&] { normalise_groups<scalar_t>(parts, sizes, made, call); }));
    ctx->save_for_backward({x, weight, call.activation == Activation::kRelu ? made.out : at::Tensor(),
                            entries, made.mean, made.scale});
    ctx->saved_data["groups"] = call.groups;
    ctx->saved_data["rectified"] = call.is_rectified;
    ctx->saved_data["residual"] = residual.has_value();
    return made.out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const auto sums = [&] { return at::empty(weight.sizes(), at::kDouble); };
    const GroupBackward given{
        .grad = as_lanes(grads[0], MemoryFormat::kChannelsLast),
        .x = x,
        .out = saved[2],
        .weight = in_double(weight),
        .mean = saved[4],
        .scale = saved[5],
        .is_rectified = ctx->saved_data["rectified"].toBool(),
        .grad_x = ctx->needs_input_grad(0) ? empty_lanes(x.sizes(), x.options()) : at::Tensor(),
        .grad_weight = sums(),
        .grad_bias = sums()};
    const NormParts parts(x, saved[3]);
    const GroupSizes sizes(x, ctx->saved_data["groups"].toInt());
    AT_DISPATCH_SWITCH(
        x.scalar_type(), "lane_group_norm", AT_DISPATCH_CASE(at::kFloat, [&] {
          write_group_gradients<scalar_t>(parts, sizes, given);
        }) AT_DISPATCH_CASE(at::kBFloat16, [&] { write_group_gradients<scalar_t>(parts, sizes, given); }));
    const auto like_weight = [&](const at::Tensor& gradient) {
      const at::Tensor like = empty_lanes(weight.sizes(), weight.options());
      like.copy_(gradient);
      return like;
    };
    // A sum hands its gradient on as it is, where it lies as a stack does.
    at::Tensor grad_residual;
    if (ctx->saved_data["residual"].toBool() && ctx->needs_input_grad(3))
      grad_residual = given.grad.strides() == x.strides()
                          ? given.grad
                          : empty_lanes(x.sizes(), x.options()).copy_(given.grad);
    return {given.grad_x, like_weight(given.grad_weight), like_weight(given.grad_bias), grad_residual,
            at::Tensor()};
  }
};

}  // namespace

bool takes_group_norm_cpu(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && x.numel() > 0 &&
         format_of(x) == MemoryFormat::kChannelsLast;
}

at::Tensor group_norm_by_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const GroupNormCall& call) {
  return GroupNormCpuFunction::apply(x, weight, bias, if_defined(call.residual), call);
}

}  // namespace espalier::lanes
