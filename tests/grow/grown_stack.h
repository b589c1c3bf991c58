// Populations for tests: small hosts, states of seeds, and one lane of them in plain torch.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "espalier/grow/network_stack.h"
#include "espalier/lanes/optim/gradients.h"
#include "tests/grow/plain_network.h"
#include "tests/lanes/compare.h"

namespace espalier::grow::testing {

inline CnnHostOptions two_blocks(int64_t lanes) {
  return {.lanes = lanes,
          .in_channels = 3,
          .height = 8,
          .width = 8,
          .num_classes = 4,
          .n_blocks = 2,
          .base_channels = 8,
          .pool_layers = 1,
          .seed = 21};  // slots r0c0, r0c1, r1c0
}

inline SlotState seed_in(SeedStage stage, int32_t blueprint, float amplitude = 0,
                         BlendOperator blend_operator = BlendOperator::kAdd) {
  return {.stage = stage,
          .blend_operator = blend_operator,
          .blueprint = blueprint,
          .amplitude = amplitude,
          .target = 1,
          .num_seeds = 1};
}

// [L,S], all DORMANT, to be written into.
struct States {
  States(int64_t lanes, int64_t slots) : slots(slots), all(static_cast<size_t>(lanes * slots)) {}
  SlotState& at(int64_t lane, int64_t slot) { return all[static_cast<size_t>(lane * slots + slot)]; }
  std::vector<SlotState> lane(int64_t lane) const {
    return {all.begin() + lane * slots, all.begin() + (lane + 1) * slots};
  }
  int64_t slots;
  std::vector<SlotState> all;
};

inline at::Tensor images_for(NetworkStack& population, int64_t batch, at::ScalarType type,
                             MemoryFormat format = MemoryFormat::kChannelsLast) {
  torch::manual_seed(17);
  const HostFrame& host = population.host().frame();
  const at::Tensor x = lanes::empty_lanes({host.lanes, batch, host.in_channels, host.height, host.width},
                                          at::TensorOptions(type), format);
  return x.copy_(at::randn(x.sizes(), at::kDouble));
}

// Every parameter of every seed random, so that nothing is zero by birth.
inline void randomise_seeds(NetworkStack& population) {
  torch::manual_seed(23);
  for (int64_t lane = 0; lane < population.num_lanes(); ++lane)
    for (const NamedTensor& named : population.lane_values(lane))
      if (!named.name.starts_with("host."))
        named.tensor.copy_(at::randn(named.tensor.sizes(), at::kDouble) * 0.4);
  population.refresh();
}

inline Values copy_of_lane(NetworkStack& population, int64_t lane) {
  Values values;
  for (const NamedTensor& named : population.lane_values(lane)) values[named.name] = named.tensor.clone();
  return values;
}

inline void expect_same_lane(const Values& got, const Values& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (const auto& [name, tensor] : want)
    lanes::testing::expect_same_bits(got.at(name), tensor, what + ": " + name);
}

// Gradients of one lane, named as lane_values(), after lane_backward().
inline Values gradients_of_lane(NetworkStack& population, int64_t lane) {
  Values values;
  for (const ParameterGroup& group : population.groups()) {
    int64_t entry = lane;
    std::string prefix = "host.";
    if (group.slot >= 0) {
      const auto found = std::find(group.entry_lanes.begin(), group.entry_lanes.end(), lane);
      if (found == group.entry_lanes.end()) continue;
      entry = found - group.entry_lanes.begin();
      prefix = group.name + ".";
    }
    for (const auto& named : group.parameters)
      values[prefix + named.name] = named.parameter->gradient().select(0, entry).clone();
  }
  return values;
}

// Logits, with the gradients of weighted sums of them in all parameters.
inline at::Tensor run_step(NetworkStack& population, const at::Tensor& x) {
  const at::Tensor logits = population.forward(x, lanes::Mode::kTrain);
  torch::manual_seed(29);
  // The weights of a lane are the same however many lanes there are.
  const at::Tensor weights =
      at::randn({logits.size(1), logits.size(2)}, at::kDouble).to(logits.scalar_type());
  lanes::lane_backward((logits * weights).sum({1, 2}), population.parameters());
  return logits.detach();
}

}  // namespace espalier::grow::testing
