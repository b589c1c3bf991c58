// A multi-stream network in plain torch, by the formulas of docs/linet.md: what Linet is compared with.
#pragma once

#include <torch/torch.h>

#include <map>
#include <string>
#include <vector>

#include "espalier/linet/network.h"

namespace espalier::linet::testing {

struct PlainLinet {
  LinetShape shape;
  std::map<std::string, at::Tensor> values;  // f64, as stream_tensors() names them; parameters are leaves
  bool trains = true;
  at::Tensor keep = {};       // [S,B] bool, or undefined
  int64_t num_fallbacks = 0;  // norms that were left a single value

  explicit PlainLinet(Linet& net) : shape(net.shape()) {
    for (const StreamTensor& tensor : net.stream_tensors()) {
      at::Tensor value = tensor.value().detach().to(at::kDouble).clone();
      if (tensor.parameter) value.set_requires_grad(true);
      values[tensor.name] = value;
    }
  }

  const at::Tensor& operator[](const std::string& name) const { return values.at(name); }

  std::string path_name(size_t path) const {
    return path == shape.in_channels.size() ? "integrated" : "streams." + std::to_string(path);
  }

  // paths: the streams', then the integrated one's where there is a state before.
  std::vector<at::Tensor> conv(const std::string& name, const std::vector<at::Tensor>& paths,
                               int64_t stride) const {
    const size_t streams = shape.in_channels.size();
    std::vector<at::Tensor> out;
    at::Tensor z;
    for (size_t i = 0; i < streams; ++i) {
      const std::string s = std::to_string(i);
      const at::Tensor& weight = (*this)[name + ".streams." + s + ".weight"];
      out.push_back(at::conv2d(paths[i], weight, {}, stride, weight.size(2) / 2));
      const at::Tensor term = at::conv2d(out[i], (*this)[name + ".mix." + s + ".weight"]);
      z = z.defined() ? z + term : term;
    }
    if (paths.size() > streams)
      z = z + at::conv2d(paths[streams], (*this)[name + ".previous.weight"], {}, stride);
    out.push_back(z);
    return out;
  }

  at::Tensor norm(const std::string& name, const at::Tensor& x, size_t path) {
    const std::string prefix = name + "." + path_name(path) + ".";
    const auto normalised = [&](const at::Tensor& in, bool by_batch) {
      return at::batch_norm(in, (*this)[prefix + "weight"], (*this)[prefix + "bias"],
                            values.at(prefix + "running_mean"), values.at(prefix + "running_var"), by_batch,
                            0.1, 1e-5, false);
    };
    if (!keep.defined() || path == shape.in_channels.size()) return normalised(x, trains);
    const at::Tensor places = keep[static_cast<int64_t>(path)].nonzero().flatten();
    if (places.size(0) == 0) return x * 0;
    const at::Tensor kept = x.index_select(0, places);
    const bool is_single = kept.size(0) * kept.size(2) * kept.size(3) == 1;
    num_fallbacks += trains && is_single ? 1 : 0;
    return at::zeros_like(x).index_put({places}, normalised(kept, trains && !is_single));
  }

  std::vector<at::Tensor> norms(const std::string& name, const std::vector<at::Tensor>& paths) {
    std::vector<at::Tensor> out;
    for (size_t path = 0; path < paths.size(); ++path) out.push_back(norm(name, paths[path], path));
    return out;
  }

  static std::vector<at::Tensor> relu(std::vector<at::Tensor> paths) {
    for (at::Tensor& path : paths) path = path.relu();
    return paths;
  }

  // Basic blocks alone.
  std::vector<at::Tensor> block(const std::string& name, const std::vector<at::Tensor>& x, int64_t stride) {
    std::vector<at::Tensor> h = relu(norms(name + ".bn1", conv(name + ".conv1", x, stride)));
    h = norms(name + ".bn2", conv(name + ".conv2", h, 1));
    const bool projects = values.contains(name + ".downsample.conv.previous.weight");
    const std::vector<at::Tensor> around =
        projects ? norms(name + ".downsample.bn", conv(name + ".downsample.conv", x, stride)) : x;
    for (size_t path = 0; path < h.size(); ++path) h[path] = (h[path] + around[path]).relu();
    return h;
  }

  // x: S x [B,C_i,H,W]. Returns the pooled features of all paths, [B,F] each; logits() of the last.
  std::vector<at::Tensor> features(std::vector<at::Tensor> x) {
    if (keep.defined())
      for (size_t i = 0; i < x.size(); ++i)
        x[i] = at::where(keep[static_cast<int64_t>(i)].view({-1, 1, 1, 1}), x[i], 0);
    std::vector<at::Tensor> h = relu(norms("bn1", conv("conv1", x, 2)));
    for (at::Tensor& path : h) path = at::max_pool2d(path, {3, 3}, {2, 2}, {1, 1});
    for (size_t stage = 0; stage < shape.stages.size(); ++stage)
      for (int64_t i = 0; i < shape.stages[stage]; ++i)
        h = block("layer" + std::to_string(stage + 1) + "." + std::to_string(i), h,
                  i == 0 && stage > 0 ? 2 : 1);
    for (at::Tensor& path : h) path = path.mean({2, 3});
    return h;
  }

  at::Tensor logits(const std::vector<at::Tensor>& features) const {
    return at::linear(features.back(), (*this)["fc.weight"], (*this)["fc.bias"]);
  }
};

}  // namespace espalier::linet::testing
