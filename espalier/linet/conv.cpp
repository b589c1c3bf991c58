#include "espalier/linet/conv.h"

#include <ATen/Context.h>
#include <ATen/ops/add.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include "espalier/lanes/conv/passes.h"
#include "espalier/lanes/stack.h"

namespace espalier::linet {
namespace {

using lanes::ConvGeometry;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// A lane [B,C,H,W] as rows of channels, one per pixel: [B*H*W,C], a view.
at::Tensor rows(const at::Tensor& lane) {
  return lane.permute({0, 2, 3, 1}).view({-1, lane.size(1)});
}

// V [K,C,1,1] as a matrix.
at::Tensor matrix(const at::Tensor& filters) {
  return filters.view({filters.size(0), filters.size(1)});
}

enum class Sum { kSet, kAdd };

// to = m from, or to += m from, pixel by pixel. to [B,K,H,W], m [K,C], from [B,C,H,W]; both lie in the
// format.
void multiply(const at::Tensor& to, const at::Tensor& m, const at::Tensor& from, Sum sum,
              MemoryFormat format) {
  const at::NoTF32Guard exact;
  if (format == MemoryFormat::kChannelsLast) {
    at::Tensor out = rows(to);
    sum == Sum::kSet ? at::mm_out(out, rows(from), m.t()) : out.addmm_(rows(from), m.t());
  } else {
    const at::Tensor each = m.unsqueeze(0).expand({from.size(0), m.size(0), m.size(1)});
    at::Tensor out = to.flatten(2);
    sum == Sum::kSet ? at::bmm_out(out, each, from.flatten(2)) : out.baddbmm_(each, from.flatten(2));
  }
}

// Whether nobody else holds the gradient, so that it may be written; torch's own AccumulateGrad asks the
// same. Nor may its lanes share memory, as those of an expanded one do.
bool is_ours(const at::Tensor& grad) {
  return grad.use_count() == 1 && grad.storage().use_count() == 1 &&
         (grad.size(0) == 1 || grad.stride(0) >= grad.numel() / grad.size(0));
}

struct LiConvFunction : torch::autograd::Function<LiConvFunction> {
  // weight, mix, previous: masters, whose gradients are returned; the compute copies follow them.
  static at::Tensor forward(AutogradContext* ctx, at::TensorList given, at::TensorList weight,
                            at::TensorList compute, const at::Tensor& mix, const at::Tensor& mix_compute,
                            const std::optional<at::Tensor>& previous,
                            const std::optional<at::Tensor>& previous_compute, ConvGeometry geometry,
                            MemoryFormat format) {
    tensor_list x;
    for (const at::Tensor& each : given) x.push_back(lanes::as_lanes(each, format));
    const int64_t streams = mix.size(0), last = streams;
    const at::Tensor& first = x[0];
    const auto after = [&](int64_t axis) {
      return (first.size(axis) + 2 * geometry.padding - weight[0].size(axis)) / geometry.stride + 1;
    };
    const at::Tensor raw = lanes::empty_lanes({streams + 1, first.size(1), mix.size(1), after(3), after(4)},
                                              first.options(), format);
    if (raw.numel() > 0) {
      for (size_t i = 0; i < weight.size(); ++i) {
        const int64_t count = weight[i].size(0), from = static_cast<int64_t>(i);
        lanes::conv_forward(x[i].narrow(0, 0, count), compute[i], {}, geometry, at::Tensor(),
                            raw.narrow(0, from, count));
      }
      if (previous)
        lanes::conv_forward(first.narrow(0, last, 1), *previous_compute, {}, {.stride = geometry.stride},
                            at::Tensor(), raw.narrow(0, last, 1));
      for (int64_t i = 0; i < streams; ++i)
        multiply(raw.select(0, last), matrix(mix_compute.select(0, i)), raw.select(0, i),
                 i == 0 && !previous ? Sum::kSet : Sum::kAdd, format);
    }
    tensor_list saved{raw, mix_compute, previous_compute.value_or(at::Tensor())};
    saved.insert(saved.end(), x.begin(), x.end());
    saved.insert(saved.end(), compute.begin(), compute.end());
    ctx->save_for_backward(saved);
    ctx->saved_data["master"] = mix.scalar_type();
    ctx->saved_data["format"] = static_cast<int64_t>(format);
    ctx->saved_data["stride"] = geometry.stride;
    ctx->saved_data["padding"] = geometry.padding;
    return raw;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &raw = saved[0], &mix = saved[1], &previous = saved[2];
    const size_t parts = (saved.size() - 3) / 2;  // 1, or a first layer's S
    const auto x = [&](size_t i) -> const at::Tensor& { return saved[3 + i]; };
    const auto weight = [&](size_t i) -> const at::Tensor& { return saved[3 + parts + i]; };
    const ConvGeometry geometry{.stride = ctx->saved_data["stride"].toInt(),
                                .padding = ctx->saved_data["padding"].toInt()};
    const ConvGeometry point{.stride = geometry.stride};
    const int64_t streams = mix.size(0), last = streams;
    const auto format = static_cast<MemoryFormat>(ctx->saved_data["format"].toInt());
    const auto master = raw.options().dtype(ctx->saved_data["master"].toScalarType());
    const bool empty = raw.numel() == 0;
    const auto make = [&](const at::Tensor& like, const at::TensorOptions& options) {
      return empty ? lanes::zero_lanes(like.sizes(), options, format)
                   : lanes::empty_lanes(like.sizes(), options, format);
    };
    tensor_list grad_x(parts), grad_weight(parts), none(parts);
    for (size_t i = 0; i < parts; ++i) {
      if (ctx->needs_input_grad(i)) grad_x[i] = make(x(i), raw.options());
      grad_weight[i] = make(weight(i), master);
    }
    const at::Tensor grad_mix = make(mix, master);
    const at::Tensor grad_previous = previous.defined() ? make(previous, master) : at::Tensor();

    if (!empty) {
      const bool writable = is_ours(grads[0]);
      at::Tensor grad = lanes::as_lanes(grads[0], format);  // [S+1,B,K,H',W']
      if (grad.is_alias_of(grads[0]) && !writable) {
        grad = lanes::empty_lanes(raw.sizes(), raw.options(), format);
        grad.copy_(grads[0]);
      }
      const at::Tensor grad_z = grad.select(0, last);
      lanes::conv_backward_weight(grad.narrow(0, last, 1).expand({streams, -1, -1, -1, -1}),
                                  raw.narrow(0, 0, streams), {}, at::Tensor(), grad_mix);
      for (int64_t i = 0; i < streams; ++i)
        multiply(grad.select(0, i), matrix(mix.select(0, i)).t(), grad_z, Sum::kAdd, format);
      for (size_t i = 0; i < parts; ++i) {
        const int64_t count = weight(i).size(0);
        const at::Tensor own = grad.narrow(0, static_cast<int64_t>(i), count);
        if (grad_x[i].defined())
          lanes::conv_backward_data(own, weight(i), geometry, at::Tensor(), grad_x[i].narrow(0, 0, count));
        lanes::conv_backward_weight(own, x(i).narrow(0, 0, count), geometry, at::Tensor(), grad_weight[i]);
      }
      if (previous.defined()) {
        const at::Tensor own = grad.narrow(0, last, 1);
        if (grad_x[0].defined())
          lanes::conv_backward_data(own, previous, point, at::Tensor(), grad_x[0].narrow(0, last, 1));
        lanes::conv_backward_weight(own, x(0).narrow(0, last, 1), point, at::Tensor(), grad_previous);
      }
    }
    tensor_list results = grad_x;
    results.insert(results.end(), grad_weight.begin(), grad_weight.end());
    results.insert(results.end(), none.begin(), none.end());
    results.insert(results.end(),
                   {grad_mix, at::Tensor(), grad_previous, at::Tensor(), at::Tensor(), at::Tensor()});
    return results;
  }
};

}  // namespace

LiConv::LiConv(const LiConvOptions& options, const at::TensorOptions& tensor_options, at::ScalarType compute)
    : mix({options.streams, options.filters, options.filters, 1, 1}, tensor_options, compute),
      streams_(options.streams),
      geometry_{.stride = options.stride, .padding = options.kernel_size / 2} {
  const auto filters = [&](int64_t lanes, int64_t channels) {
    weight.push_back(
        lanes::LaneParameter({lanes, options.filters, channels, options.kernel_size, options.kernel_size},
                             tensor_options, compute));
  };
  if (options.apart.empty()) {
    filters(options.streams, options.in_channels);
    previous = lanes::LaneParameter({1, options.filters, options.in_channels, 1, 1}, tensor_options, compute);
  } else {
    TORCH_CHECK(static_cast<int64_t>(options.apart.size()) == options.streams,
                "LiConv: apart: want one number of channels for each of ", options.streams, " streams, got ",
                options.apart.size());
    for (const int64_t channels : options.apart) filters(1, channels);
  }
  if (options.has_bias)
    bias = lanes::LaneParameter({options.streams + 1, options.filters}, tensor_options,
                                c10::typeMetaToScalarType(tensor_options.dtype()));
}

at::Tensor LiConv::forward(at::TensorList x) const {
  TORCH_CHECK(x.size() == weight.size(), "LiConv: x: want ", weight.size(), " tensors, got ", x.size());
  tensor_list masters, copies, tells;
  for (size_t i = 0; i < weight.size(); ++i) {
    const int64_t lanes = has_previous() ? streams_ + 1 : 1;
    lanes::check_stacked(x[i], "LiConv", "x");
    TORCH_CHECK(x[i].size(0) == lanes && x[i].size(2) == weight[i].value().size(2), "LiConv: x: want [",
                lanes, ",B,", weight[i].value().size(2), ",H,W], got ", x[i].sizes());
    TORCH_CHECK(x[i].sizes().slice(3) == x[0].sizes().slice(3) && x[i].size(1) == x[0].size(1),
                "LiConv: x: want streams of one batch and size, got ", x[0].sizes(), " and ", x[i].sizes());
    masters.push_back(weight[i].value());
    copies.push_back(weight[i].compute());
  }
  // The filters come first: their format is the network's.
  tells.insert(tells.end(), copies.begin(), copies.end());
  tells.push_back(mix.compute());
  tells.insert(tells.end(), x.begin(), x.end());
  const MemoryFormat format = lanes::common_format(tells);
  for (const at::Tensor& each : tells)
    TORCH_CHECK(each.numel() == 0 || lanes::lies_in(each, format),
                "LiConv: x: want the memory format of the filters, got strides ", each.strides(), " of ",
                each.sizes());
  const at::Tensor raw = LiConvFunction::apply(
      x, at::TensorList(masters), at::TensorList(copies), mix.value(), mix.compute(),
      lanes::if_defined(previous.value()), lanes::if_defined(previous.compute()), geometry_, format);
  if (!bias.defined()) return raw;
  return raw + bias.value().to(raw.scalar_type()).view({streams_ + 1, 1, -1, 1, 1});
}

at::Tensor LiConv::forward_stream(int64_t stream, const at::Tensor& x) const {
  const bool is_apart = !has_previous();
  const lanes::LaneParameter& filters = weight[is_apart ? static_cast<size_t>(stream) : 0];
  const at::Tensor own = filters.value().narrow(0, is_apart ? 0 : stream, 1).to(x.scalar_type());
  return lanes::lane_conv2d(x, own, bias.defined() ? bias.value().narrow(0, stream, 1) : at::Tensor(),
                            geometry_);
}

at::Tensor LiConv::contribution_norms(const at::Tensor& raw) const {
  // |V d|^2 = sum (V G) V with G = d d^T over pixels, which is small: V d itself is never made.
  const at::Tensor pixels =
      raw.narrow(0, 0, streams_).permute({0, 1, 3, 4, 2}).reshape({streams_, -1, raw.size(2)});  // [S,P,K]
  const at::Tensor wide = pixels.to(mix.value().scalar_type());
  const at::Tensor gram = at::bmm(wide.transpose(1, 2), wide);  // [S,K,K]
  const at::Tensor v = mix.value().view({streams_, mix.value().size(1), -1});
  return (at::bmm(v, gram) * v).sum(at::IntArrayRef({1, 2})).clamp_min(1e-30).sqrt();
}

}  // namespace espalier::linet
