#include "bench/linet/plain.h"

#include <ATen/ops/add.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/relu.h>
#include <fmt/format.h>

namespace espalier::bench {

PlainLinet::PlainLinet(linet::Linet& net, at::ScalarType compute, MemoryFormat format, StreamPacking packing)
    : shape_(net.shape()), packing_(packing) {
  for (const linet::StreamTensor& tensor : net.stream_tensors()) {
    at::Tensor copy = tensor.value().detach().clone();
    if (copy.dim() == 4) copy = copy.to(compute).contiguous(torch_format(format));
    if (tensor.parameter) parameters_.push_back(copy.set_requires_grad(true));
    values_[tensor.name] = copy;
  }
}

// Convolutions, what they integrate to, norms; no ReLU.
PlainLinet::Paths PlainLinet::layer(const std::string& conv, const std::string& norm, const Paths& x,
                                    int64_t stride) {
  const auto streams = static_cast<size_t>(shape_.num_streams());
  const auto filters = [&](size_t i) { return value(fmt::format("{}.streams.{}.weight", conv, i)); };
  const int64_t padding = filters(0).size(2) / 2;
  Paths raw;
  if (packing_ == StreamPacking::kGrouped && x.size() > streams) {
    Paths inputs(x.begin(), x.begin() + static_cast<int64_t>(streams)), weights;
    for (size_t i = 0; i < streams; ++i) weights.push_back(filters(i));
    raw = at::conv2d(at::cat(inputs, 1), at::cat(weights, 0), {}, stride, padding, 1, shape_.num_streams())
              .chunk(shape_.num_streams(), 1);
  } else {
    for (size_t i = 0; i < streams; ++i) raw.push_back(at::conv2d(x[i], filters(i), {}, stride, padding));
  }
  at::Tensor z;
  for (size_t i = 0; i < streams; ++i) {
    const at::Tensor part = at::conv2d(raw[i], value(fmt::format("{}.mix.{}.weight", conv, i)));
    z = i == 0 ? part : z + part;
  }
  if (x.size() > streams) z = z + at::conv2d(x[streams], value(conv + ".previous.weight"), {}, stride);
  raw.push_back(z);
  Paths out;
  for (size_t path = 0; path <= streams; ++path) {
    const std::string prefix =
        path == streams ? norm + ".integrated." : fmt::format("{}.streams.{}.", norm, path);
    out.push_back(at::batch_norm(raw[path], value(prefix + "weight"), value(prefix + "bias"),
                                 value(prefix + "running_mean"), value(prefix + "running_var"),
                                 /*training=*/true, 0.1, 1e-5, /*cudnn_enabled=*/true));
  }
  return out;
}

PlainLinet::Paths PlainLinet::block(const std::string& name, const Paths& x, int64_t stride) {
  const bool is_basic = shape_.block == linet::BlockKind::kBasic;
  const int64_t last = is_basic ? 2 : 3;
  Paths h = x;
  for (int64_t i = 1; i <= last; ++i) {
    const bool has_stride = i == (is_basic ? 1 : 2);
    h = layer(fmt::format("{}.conv{}", name, i), fmt::format("{}.bn{}", name, i), h, has_stride ? stride : 1);
    if (i < last)
      for (at::Tensor& path : h) path = at::relu(path);
  }
  const Paths residual = values_.contains(name + ".downsample.conv.previous.weight")
                             ? layer(name + ".downsample.conv", name + ".downsample.bn", x, stride)
                             : x;
  for (size_t path = 0; path < h.size(); ++path) h[path] = at::relu(h[path] + residual[path]);
  return h;
}

at::Tensor PlainLinet::forward(const std::vector<at::Tensor>& x) {
  Paths h = layer("conv1", "bn1", x, 2);
  for (at::Tensor& path : h) path = at::max_pool2d(at::relu(path), {3, 3}, {2, 2}, {1, 1});
  for (size_t stage = 0; stage < shape_.stages.size(); ++stage)
    for (int64_t i = 0; i < shape_.stages[stage]; ++i)
      h = block(fmt::format("layer{}.{}", stage + 1, i), h, stage > 0 && i == 0 ? 2 : 1);
  const at::Tensor features = h.back().to(at::kFloat).mean(at::IntArrayRef({2, 3}));
  return at::linear(features, value("fc.weight"), value("fc.bias"));
}

}  // namespace espalier::bench
