// One lane of a population in plain torch: what the stacked networks are compared with.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/host/shape.h"
#include "espalier/grow/seeds/blueprint.h"

namespace espalier::grow::testing {

// Values of one lane by name, as NetworkStack::lane_values() names them; leaves where gradients are wanted.
using Values = std::map<std::string, at::Tensor>;

// A view of values whose names begin alike.
struct Named {
  const Values& values;
  std::string prefix;
  const at::Tensor& operator[](const std::string& name) const { return values.at(prefix + name); }
};

inline at::Tensor plain_norm(const Named& v, const at::Tensor& x, const std::string& name = "norm") {
  return at::group_norm(x, group_norm_groups(x.size(1)), v[name + ".weight"], v[name + ".bias"], 1e-5);
}

inline at::Tensor plain_conv(const Named& v, const std::string& name, const at::Tensor& x,
                             int64_t groups = 1) {
  const at::Tensor& weight = v[name + ".weight"];
  const int64_t padding = weight.size(2) / 2;
  return at::conv2d(x, weight, {}, 1, padding, 1, groups);
}

inline at::Tensor plain_linear(const Named& v, const std::string& name, const at::Tensor& x) {
  return at::linear(x, v[name + ".weight"], v[name + ".bias"]);
}

// The blueprints as grow/seeds/modules.h defines them, x: [B,C,H,W].
inline at::Tensor plain_seed(const std::string& blueprint, const Named& v, const at::Tensor& x) {
  if (blueprint == "noop") return x;
  if (blueprint == "norm") return x + at::tanh(v["mix"]) * (plain_norm(v, x) - x);
  if (blueprint == "attention") {
    const at::Tensor features = at::relu(plain_linear(v, "squeeze", x.mean({2, 3})));
    return x * 2 * at::sigmoid(plain_linear(v, "excite", features)).unsqueeze(-1).unsqueeze(-1);
  }
  if (blueprint == "depthwise") {
    const at::Tensor y = plain_conv(v, "pointwise", plain_conv(v, "depthwise", x, x.size(1)));
    return x + plain_norm(v, at::relu(y));
  }
  if (blueprint == "bottleneck")
    return x + plain_norm(v, plain_conv(v, "up", plain_conv(v, "conv", plain_conv(v, "down", x))));
  if (blueprint == "conv_small" || blueprint == "conv_light")
    return x + plain_norm(v, at::relu(plain_conv(v, "conv", x)));
  if (blueprint == "conv_heavy") {
    const at::Tensor y = at::relu(plain_norm(v, plain_conv(v, "conv0", x), "norm0"));
    return x + plain_norm(v, at::relu(plain_conv(v, "conv1", y)), "norm1");
  }
  throw std::logic_error("no plain " + blueprint);
}

inline at::Tensor plain_blend(const SlotState& state, const std::string& blueprint, const Named& v,
                              const at::Tensor& h) {
  if (!holds_seed(state.stage)) return h;
  if (state.stage == SeedStage::kGerminated || state.stage == SeedStage::kTraining) {
    const at::Tensor s = plain_seed(blueprint, v, h.detach());
    return h + (s - s.detach());
  }
  const double a = state.amplitude;
  if (a == 0) return h;
  const at::Tensor s = plain_seed(blueprint, v, h);
  switch (state.blend_operator) {
    case BlendOperator::kAdd:
      return h + a * (s - h);
    case BlendOperator::kMultiply:
      return h * (1 + a * at::tanh(s - h));
    case BlendOperator::kGate: {
      const at::Tensor hidden = at::relu(plain_linear(v, "gate.hidden", h.mean({2, 3})));
      return h + a * at::sigmoid(plain_linear(v, "gate.out", hidden)).view({-1, 1, 1, 1}) * (s - h);
    }
  }
  return h;
}

struct PlainNetwork {
  CnnHostOptions options;
  Values values;
  std::vector<SlotState> states;   // by action index; none: a bare host
  std::vector<std::string> kinds;  // names of blueprints, by their number
  bool trains = true;

  // x: [B,C,H,W]. Returns [B,num_classes]. Running statistics in `values` move when it trains.
  at::Tensor forward(const at::Tensor& x) const {
    const std::vector<SlotSpec> slots = slots_by_action(options);
    const auto grow = [&](const std::string& name, const at::Tensor& h) {
      for (size_t i = 0; i < states.size(); ++i) {
        if (slots[i].name != name || !holds_seed(states[i].stage)) continue;
        const std::string& kind = kinds[static_cast<size_t>(states[i].blueprint)];
        return plain_blend(states[i], kind, {values, name + "." + kind + "."}, h);
      }
      return h;
    };
    at::Tensor h = x;
    for (int64_t i = 0; i < options.n_blocks; ++i) {
      const Named v{values, "host.block" + std::to_string(i) + "."};
      h = plain_conv(v, "conv", h);
      h = at::relu(at::batch_norm(h, v["norm.weight"], v["norm.bias"], v["norm.running_mean"],
                                  v["norm.running_var"], trains, 0.1, 1e-5, false));
      h = grow("r0c" + std::to_string(i), h);
      if (i >= num_pooled(options)) continue;
      h = grow("r1c" + std::to_string(i), at::max_pool2d(h, {2, 2}));
    }
    return plain_linear({values, "host."}, "classifier", h.mean({2, 3}));
  }
};

}  // namespace espalier::grow::testing
