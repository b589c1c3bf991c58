#include "espalier/lanes/norm/cpu.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/lanes/active.h"
#include "espalier/lanes/norm/cpu_parts.h"
#include "espalier/lanes/norm/cpu_rows.h"
#include "espalier/lanes/stack.h"

namespace espalier::lanes {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// What a lane's statistics come to. mean, scale (one over the deviation): [L,C] f64; affine: [L,2,C] f64,
// what x is multiplied with and what is added.
struct Statistics {
  at::Tensor mean, scale, affine;
};

template <class T>
Statistics statistics_of(const NormParts& parts, const at::Tensor& x, const at::Tensor& weight,
                         const at::Tensor& bias, const BatchNormCall& call) {
  const NormSizes& sizes = parts.sizes;
  const NormRows<T>& rows = norm_rows<T>();
  const int64_t channels = sizes.channels;
  Statistics made{.mean = at::empty({x.size(0), channels}, at::kDouble),
                  .scale = at::empty({x.size(0), channels}, at::kDouble),
                  .affine = at::empty({x.size(0), 2, channels}, at::kDouble)};
  const bool trains = call.mode == Mode::kTrain;
  const auto n = static_cast<double>(sizes.count());
  const at::Tensor sums = trains ? parts.sums(x.size(0), 1) : at::Tensor();
  const auto add_up = [&](const auto& add_row) {
    parts.each([&](const NormPart& part) {
      std::vector<double> acc(static_cast<size_t>(sizes.period()), 0.0);
      const T* const from = lane_of<const T>(x, part.lane);
      for (int64_t row = part.first * sizes.height; row < part.last * sizes.height; ++row)
        add_row(part.lane, from + row * sizes.row(), acc.data());
      fold(acc, channels, parts.sum(sums, part, 0));
    });
  };
  if (trains) {
    add_up([&](int64_t, const T* row, double* acc) { rows.add(row, sizes.row(), sizes.period(), acc); });
    std::vector<std::vector<double>> means(static_cast<size_t>(x.size(0)));
    for (const int64_t lane : parts.lanes) {
      std::vector<double> mean = parts.total(sums, lane, 0);
      for (double& value : mean) value /= n;
      std::ranges::copy(mean, lane_of<double>(made.mean, lane));
      means[static_cast<size_t>(lane)] = repeated<double>(mean.data(), sizes);
    }
    add_up([&](int64_t lane, const T* row, double* acc) {
      rows.add_squares(row, sizes.row(), sizes.period(), means[static_cast<size_t>(lane)].data(), acc);
    });
  }
  for (const int64_t lane : parts.lanes) {
    double* const mean = lane_of<double>(made.mean, lane);
    double* const scale = lane_of<double>(made.scale, lane);
    double* const affine = lane_of<double>(made.affine, lane);
    float* const running_mean = lane_of<float>(call.running_mean, lane);
    float* const running_var = lane_of<float>(call.running_var, lane);
    const std::vector<double> squares = trains ? parts.total(sums, lane, 0) : std::vector<double>();
    for (int64_t c = 0; c < channels; ++c) {
      double variance = static_cast<double>(running_var[c]);
      if (trains) {
        const double squared = squares[static_cast<size_t>(c)];
        variance = squared / n;
        const auto move = [&](float& running, double batch) {
          running =
              static_cast<float>(call.momentum * batch + (1 - call.momentum) * static_cast<double>(running));
        };
        move(running_mean[c], mean[c]);
        move(running_var[c], squared / (n - 1));
      } else {
        mean[c] = static_cast<double>(running_mean[c]);
      }
      scale[c] = 1 / std::sqrt(variance + call.eps);
      const double factor = static_cast<double>(lane_of<const float>(weight, lane)[c]) * scale[c];
      affine[c] = factor;
      affine[channels + c] = static_cast<double>(lane_of<const float>(bias, lane)[c]) - mean[c] * factor;
    }
  }
  return made;
}

template <class T>
void normalise(const NormParts& parts, const at::Tensor& x, const at::Tensor& residual,
               const Statistics& statistics, const BatchNormCall& call, const at::Tensor& out,
               const at::Tensor& places) {
  const NormSizes& sizes = parts.sizes;
  const NormRows<T>& rows = norm_rows<T>();
  const int64_t row = sizes.row(), period = sizes.period();
  const bool relu = call.activation == Activation::kRelu, pools = call.pooling == Pooling::k2x2;
  parts.each([&](const NormPart& part) {
    const double* const affine = lane_of<const double>(statistics.affine, part.lane);
    const std::vector<double> a = repeated<double>(affine, sizes),
                              b = repeated<double>(affine + sizes.channels, sizes);
    const T* const from = lane_of<const T>(x, part.lane);
    T* const to = lane_of<T>(out, part.lane);
    std::vector<T> pair(static_cast<size_t>(pools ? 2 * row : 0));
    for (int64_t sample = part.first; sample < part.last; ++sample) {
      const int64_t first = sample * sizes.height;
      if (!pools) {
        for (int64_t i = first * row; i < (first + sizes.height) * row; i += row)
          rows.apply(from + i, row, period, a.data(), b.data(),
                     residual.defined() ? lane_of<const T>(residual, part.lane) + i : nullptr, relu, to + i);
        continue;
      }
      for (int64_t y = 0; y < sizes.height / 2; ++y) {
        for (int64_t half = 0; half < 2; ++half)
          rows.apply(from + (first + 2 * y + half) * row, row, period, a.data(), b.data(), nullptr, relu,
                     pair.data() + half * row);
        const int64_t pooled = (sample * (sizes.height / 2) + y) * sizes.pooled_row();
        rows.pool(pair.data(), pair.data() + row, sizes.width / 2, sizes.channels, relu, to + pooled,
                  lane_of<uint8_t>(places, part.lane) + pooled);
      }
    }
  });
}

// What a backward pass is given.
struct Backward {
  at::Tensor grad;  // [L,B,C,H,W], or pooled
  at::Tensor x;
  at::Tensor out;     // what is rectified and not pooled; or undefined
  at::Tensor places;  // [L,B,H/2,W/2,C] u8: where the pool's values came from; undefined: nothing was pooled
  bool trains = false;
};

// Calls body(row of x and of what is like it, gradient past pool and ReLU [W,C] f32) for all rows of a part.
template <class T, class Body>
void each_gradient_row(const NormSizes& sizes, const NormPart& part, const Backward& given,
                       const Body& body) {
  const NormRows<T>& rows = norm_rows<T>();
  const int64_t row = sizes.row();
  const T* const grad = lane_of<const T>(given.grad, part.lane);
  std::vector<float> gradients(static_cast<size_t>(2 * row));
  if (!given.places.defined()) {
    for (int64_t i = part.first * sizes.height; i < part.last * sizes.height; ++i) {
      rows.mask(grad + i * row,
                given.out.defined() ? lane_of<const T>(given.out, part.lane) + i * row : nullptr, row,
                gradients.data());
      body(i, gradients.data());
    }
    return;
  }
  const uint8_t* const places = lane_of<const uint8_t>(given.places, part.lane);
  for (int64_t sample = part.first; sample < part.last; ++sample) {
    const int64_t first = sample * sizes.height;
    // Where a row, or a column, is left over, nothing of it was pooled.
    std::ranges::fill(gradients, 0.0f);
    for (int64_t y = 0; y < sizes.height / 2; ++y) {
      const int64_t pooled = (sample * (sizes.height / 2) + y) * sizes.pooled_row();
      rows.unpool(places + pooled, grad + pooled, sizes.width / 2, sizes.channels, gradients.data(),
                  gradients.data() + row);
      for (int64_t half = 0; half < 2; ++half) body(first + 2 * y + half, gradients.data() + half * row);
    }
    if (sizes.height % 2 == 1) {
      std::ranges::fill(gradients, 0.0f);
      body(first + sizes.height - 1, gradients.data());
    }
  }
}

struct Gradients {
  at::Tensor x, weight, bias, residual;  // x, residual: undefined where nobody asks
};

// With g the gradient past pool and ReLU, m the mean and s the scale of n values:
//   weight: s times the sum of g (x - m), bias: the sum of g;
//   x: (g - mean of g - (x - m) s s mean of g (x - m)) s w; g s w where the statistics were given.
template <class T>
void write_gradients(const NormParts& parts, const Statistics& statistics, const at::Tensor& weight,
                     const Backward& given, const Gradients& to) {
  const NormSizes& sizes = parts.sizes;
  const NormRows<T>& rows = norm_rows<T>();
  const int64_t row = sizes.row(), period = sizes.period(), channels = sizes.channels;
  const at::Tensor sums = parts.sums(given.x.size(0), 2);
  parts.each([&](const NormPart& part) {
    std::vector<double> added(static_cast<size_t>(period), 0.0), dots(added);
    const std::vector<double> mean =
        repeated<double>(lane_of<const double>(statistics.mean, part.lane), sizes);
    const T* const x = lane_of<const T>(given.x, part.lane);
    each_gradient_row<T>(sizes, part, given, [&](int64_t i, const float* gradients) {
      rows.add_gradients(gradients, x + i * row, row, period, mean.data(), added.data(), dots.data());
      if (to.residual.defined()) rows.cast(gradients, row, lane_of<T>(to.residual, part.lane) + i * row);
    });
    fold(added, channels, parts.sum(sums, part, 0));
    fold(dots, channels, parts.sum(sums, part, 1));
  });
  const auto n = static_cast<double>(sizes.count());
  // [L,3,C] f32: shift, slope and factor of grad_x_row().
  const at::Tensor terms = at::empty({given.x.size(0), 3, channels}, at::kFloat);
  for (const int64_t lane : parts.lanes) {
    const std::vector<double> added = parts.total(sums, lane, 0), dots = parts.total(sums, lane, 1);
    const double* const scale = lane_of<const double>(statistics.scale, lane);
    float* const term = lane_of<float>(terms, lane);
    for (int64_t c = 0; c < channels; ++c) {
      const double sum = added[static_cast<size_t>(c)], dot = dots[static_cast<size_t>(c)];
      lane_of<float>(to.weight, lane)[c] = static_cast<float>(dot * scale[c]);
      lane_of<float>(to.bias, lane)[c] = static_cast<float>(sum);
      term[c] = given.trains ? static_cast<float>(sum / n) : 0.0f;
      term[channels + c] = given.trains ? static_cast<float>(dot * scale[c] * scale[c] / n) : 0.0f;
      term[2 * channels + c] =
          static_cast<float>(static_cast<double>(lane_of<const float>(weight, lane)[c]) * scale[c]);
    }
  }
  if (!to.x.defined()) return;
  parts.each([&](const NormPart& part) {
    const float* const term = lane_of<const float>(terms, part.lane);
    const std::vector<float> mean = repeated<float>(lane_of<const double>(statistics.mean, part.lane), sizes),
                             shift = repeated<float>(term, sizes),
                             slope = repeated<float>(term + channels, sizes),
                             factor = repeated<float>(term + 2 * channels, sizes);
    const T* const x = lane_of<const T>(given.x, part.lane);
    T* const out = lane_of<T>(to.x, part.lane);
    each_gradient_row<T>(sizes, part, given, [&](int64_t i, const float* gradients) {
      rows.grad_x(gradients, x + i * row, row, period, mean.data(), shift.data(), slope.data(), factor.data(),
                  out + i * row);
    });
  });
}

struct BatchNormCpuFunction : torch::autograd::Function<BatchNormCpuFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& given, const at::Tensor& weight,
                            const at::Tensor& bias, const std::optional<at::Tensor>& residual,
                            const BatchNormCall& call) {
    const at::Tensor x = as_lanes(given, MemoryFormat::kChannelsLast), entries = active_entries(x.size(0));
    const at::Tensor added = residual ? as_lanes(*residual, MemoryFormat::kChannelsLast) : at::Tensor();
    const bool pools = call.pooling == Pooling::k2x2, relu = call.activation == Activation::kRelu;
    const at::Tensor out = empty_lanes(
        {x.size(0), x.size(1), x.size(2), x.size(3) / (pools ? 2 : 1), x.size(4) / (pools ? 2 : 1)},
        x.options());
    const at::Tensor places =
        pools ? at::empty({x.size(0), x.size(1), x.size(3) / 2, x.size(4) / 2, x.size(2)}, at::kByte)
              : at::Tensor();
    const NormParts parts(x, entries);
    Statistics statistics;
    AT_DISPATCH_SWITCH(x.scalar_type(), "lane_batch_norm2d", AT_DISPATCH_CASE(at::kFloat, [&] {
                         statistics = statistics_of<scalar_t>(parts, x, weight, bias, call);
                         normalise<scalar_t>(parts, x, added, statistics, call, out, places);
                       }) AT_DISPATCH_CASE(at::kBFloat16, [&] {
                         statistics = statistics_of<scalar_t>(parts, x, weight, bias, call);
                         normalise<scalar_t>(parts, x, added, statistics, call, out, places);
                       }));
    ctx->save_for_backward(
        {x, weight, relu && !pools ? out : at::Tensor(), places, entries, statistics.mean, statistics.scale});
    ctx->saved_data["trains"] = call.mode == Mode::kTrain;
    ctx->saved_data["residual"] = residual.has_value();
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight = saved[1];
    const Statistics statistics{.mean = saved[5], .scale = saved[6], .affine = {}};
    const Backward given{.grad = as_lanes(grads[0], MemoryFormat::kChannelsLast),
                         .x = x,
                         .out = saved[2],
                         .places = saved[3],
                         .trains = ctx->saved_data["trains"].toBool()};
    const auto like_x = [&](bool wanted) {
      return wanted ? empty_lanes(x.sizes(), x.options()) : at::Tensor();
    };
    const Gradients made{
        .x = like_x(ctx->needs_input_grad(0)),
        .weight = empty_lanes(weight.sizes(), weight.options()),
        .bias = empty_lanes(weight.sizes(), weight.options()),
        // Where there was none, no input has its place.
        .residual = like_x(ctx->saved_data["residual"].toBool() && ctx->needs_input_grad(3))};
    const NormParts parts(x, saved[4]);
    AT_DISPATCH_SWITCH(x.scalar_type(), "lane_batch_norm2d", AT_DISPATCH_CASE(at::kFloat, [&] {
                         write_gradients<scalar_t>(parts, statistics, weight, given, made);
                       }) AT_DISPATCH_CASE(at::kBFloat16, [&] {
                         write_gradients<scalar_t>(parts, statistics, weight, given, made);
                       }));
    return {made.x, made.weight, made.bias, made.residual, at::Tensor()};
  }
};

}  // namespace

bool takes_batch_norm_cpu(const at::Tensor& x, const at::Tensor& weight, const BatchNormCall& call) {
  const auto is_plain = [&](const at::Tensor& values) {  // [L,C], channels side by side
    return values.scalar_type() == at::kFloat && values.is_cpu() &&
           (values.size(1) == 1 || values.stride(1) == 1);
  };
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && x.numel() > 0 &&
         format_of(x) == MemoryFormat::kChannelsLast && !call.mask.defined() && is_plain(weight) &&
         is_plain(call.running_mean) && is_plain(call.running_var) && call.pooling != Pooling::k3x3 &&
         (call.pooling == Pooling::kNone || (x.size(3) >= 2 && x.size(4) >= 2));
}

at::Tensor batch_norm_by_cpu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                             const BatchNormCall& call) {
  return BatchNormCpuFunction::apply(x, weight, bias, if_defined(call.residual), call);
}

}  // namespace espalier::lanes
