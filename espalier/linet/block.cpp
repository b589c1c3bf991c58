#include "espalier/linet/block.h"

#include <ATen/record_function.h>
#include <fmt/format.h>

namespace espalier::linet {

LiUnit::LiUnit(const LiConvOptions& options, std::string conv_name_, std::string norm_name_,
               const at::TensorOptions& tensor_options, at::ScalarType compute)
    : conv(options, tensor_options, compute),
      norm(options.streams + 1, options.filters, tensor_options),
      conv_name(std::move(conv_name_)),
      norm_name(std::move(norm_name_)) {}

at::Tensor LiUnit::raw(at::TensorList x, const PathContext& context) const {
  RECORD_USER_SCOPE(conv_name);
  const at::Tensor made = conv.forward(x);
  if (context.contributions && conv_name.starts_with(context.contributions_of))
    context.contributions->push_back(conv.contribution_norms(made));
  return made;
}

lanes::BatchNormCall LiUnit::norm_call(const PathContext& context, lanes::Activation activation) const {
  lanes::BatchNormCall call = norm.call(context.mode, context.keep);
  call.activation = activation;
  call.fallbacks = context.fallbacks;
  return call;
}

at::Tensor LiUnit::normed(const at::Tensor& raw, const lanes::BatchNormCall& call,
                          const PathContext& context) const {
  return lanes::batch_norm_forward(norm, raw, call, context.sum_over_all);
}

at::Tensor LiUnit::forward(at::TensorList x, const PathContext& context, lanes::Activation activation,
                           lanes::Pooling pooling) const {
  const at::Tensor made = raw(x, context);
  RECORD_USER_SCOPE(norm_name);
  lanes::BatchNormCall call = norm_call(context, activation);
  call.pooling = pooling;
  return normed(made, call, context);
}

at::Tensor LiUnit::forward_residual(const at::Tensor& x, const at::Tensor& residual,
                                    const PathContext& context) const {
  const at::Tensor made = raw({x}, context);
  RECORD_USER_SCOPE(norm_name);
  lanes::BatchNormCall call = norm_call(context, lanes::Activation::kRelu);
  call.residual = residual;
  return normed(made, call, context);
}

at::Tensor LiUnit::forward_stream(int64_t stream, const at::Tensor& x, const at::Tensor& residual,
                                  lanes::Activation activation, lanes::Mode mode,
                                  lanes::Pooling pooling) const {
  const auto own = [&](const at::Tensor& stacked) { return stacked.narrow(0, stream, 1); };
  return lanes::lane_batch_norm2d(conv.forward_stream(stream, x), own(norm.weight.value()),
                                  own(norm.bias.value()),
                                  {.mode = mode,
                                   .running_mean = own(norm.running_mean),
                                   .running_var = own(norm.running_var),
                                   .residual = residual,
                                   .activation = activation,
                                   .pooling = pooling,
                                   .momentum = norm.momentum,
                                   .eps = norm.eps});
}

LiBlock::LiBlock(const LiBlockOptions& options, const at::TensorOptions& tensor_options,
                 at::ScalarType compute)
    : name_(options.name) {
  const int64_t out = options.width * expansion(options.kind);
  const auto layer = [&](int64_t channels, int64_t filters, int64_t kernel, int64_t stride) {
    return LiConvOptions{.streams = options.streams,
                         .in_channels = channels,
                         .filters = filters,
                         .kernel_size = kernel,
                         .stride = stride};
  };
  std::vector<LiConvOptions> layers;
  if (options.kind == BlockKind::kBasic) {
    layers = {layer(options.in_channels, out, 3, options.stride), layer(out, out, 3, 1)};
  } else {
    layers = {layer(options.in_channels, options.width, 1, 1),
              layer(options.width, options.width, 3, options.stride), layer(options.width, out, 1, 1)};
  }
  for (size_t i = 0; i < layers.size(); ++i)
    units_.emplace_back(layers[i], fmt::format("{}.conv{}", name_, i + 1),
                        fmt::format("{}.bn{}", name_, i + 1), tensor_options, compute);
  if (options.stride != 1 || options.in_channels != out)
    shortcut_ = std::make_unique<LiUnit>(layer(options.in_channels, out, 1, options.stride),
                                         name_ + ".downsample.conv", name_ + ".downsample.bn", tensor_options,
                                         compute);
}

at::Tensor LiBlock::forward(const at::Tensor& x, const PathContext& context) const {
  at::Tensor h = x;
  for (size_t i = 0; i + 1 < units_.size(); ++i)
    h = units_[i].forward({h}, context, lanes::Activation::kRelu);
  const at::Tensor residual = shortcut_ ? shortcut_->forward({x}, context, lanes::Activation::kNone) : x;
  return units_.back().forward_residual(h, residual, context);
}

at::Tensor LiBlock::forward_stream(int64_t stream, const at::Tensor& x, lanes::Mode mode) const {
  at::Tensor h = x;
  for (size_t i = 0; i + 1 < units_.size(); ++i)
    h = units_[i].forward_stream(stream, h, {}, lanes::Activation::kRelu, mode);
  const at::Tensor residual =
      shortcut_ ? shortcut_->forward_stream(stream, x, {}, lanes::Activation::kNone, mode) : x;
  return units_.back().forward_stream(stream, h, residual, lanes::Activation::kRelu, mode);
}

std::vector<LiUnit*> LiBlock::units() {
  std::vector<LiUnit*> all;
  for (LiUnit& unit : units_) all.push_back(&unit);
  if (shortcut_) all.push_back(shortcut_.get());
  return all;
}

}  // namespace espalier::linet
