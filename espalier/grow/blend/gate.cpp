#include "espalier/grow/blend/gate.h"

#include <algorithm>

#include "espalier/grow/seeds/squeeze.h"

namespace espalier::grow {
namespace {

int64_t hidden_features(int64_t channels) {
  return std::max<int64_t>(8, channels / 4);
}

}  // namespace

BlendGate::BlendGate(const SeedBuild& build)
    : hidden_({.lanes = build.entries,
               .in_features = build.shape.channels,
               .out_features = hidden_features(build.shape.channels)},
              build.options),
      out_({.lanes = build.entries, .in_features = hidden_features(build.shape.channels), .out_features = 1},
           build.options) {}

at::Tensor BlendGate::forward(const at::Tensor& x) const {
  return lane_squeeze(x, squeeze_map(hidden_), squeeze_map(out_)).squeeze(2);
}

std::vector<lanes::NamedParameter> BlendGate::parameters() {
  std::vector<lanes::NamedParameter> named;
  lanes::append_parameters(named, "hidden.", hidden_.parameters());
  lanes::append_parameters(named, "out.", out_.parameters());
  return named;
}

void BlendGate::initialise(const SeedInit& init) {
  init.kaiming_uniform({"gate.hidden.weight", &hidden_.weight});
  init.uniform_like({"gate.hidden.bias", &hidden_.bias}, hidden_.weight);
  init.kaiming_uniform({"gate.out.weight", &out_.weight});
  init.uniform_like({"gate.out.bias", &out_.bias}, out_.weight);
}

int64_t BlendGate::num_parameters(int64_t channels) {
  const int64_t hidden = hidden_features(channels);
  return hidden * (channels + 1) + hidden + 1;
}

}  // namespace espalier::grow
