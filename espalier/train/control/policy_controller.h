// The learned controller: observes all lanes on the device, acts there, and learns from whole rounds.
//
// Kept true: it reads what every controller is shown (train/population/epoch_reading.h) and learns from the
// rewards that are reported; the chosen actions and one flag per lane go to the host, in the epoch's one
// copy; a lane that was lost only waits and does not count until its next episode; acting is captured as one
// CUDA graph, from the epoch's readings to the chosen actions, where graphs are on. An episode of T epochs
// has T - 1 decisions: what is decided after the last one could have no effect.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/policy/acting.h"
#include "espalier/policy/learn/ppo.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/train/control/controller.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

struct PolicyOptions {
  int64_t lanes = 1;  // L, of the whole job
  policy::ActionSpace space;
  std::vector<bool> enabled_slots;  // [S]: where seeds may be planted; empty: everywhere
  int64_t max_seeds = 3;
  int64_t episode_length = 2;  // T, in epochs
  grow::GateOptions gates;     // as the lifecycle's: what healthy gradients are
  int64_t encoder_size = 512;
  int64_t hidden_size = 512;
  policy::PpoOptions ppo;
  uint64_t seed = 0;
  at::Device device = at::kCPU;
  Graphs graphs = Graphs::kOn;
};

class PolicyController final : public Controller {
 public:
  explicit PolicyController(const PolicyOptions& options);

  // For the episodes that begin from now on; to learn, at first.
  void set_mode(policy::ActingMode mode) { mode_ = mode; }

  // Draws depend on (seed, round, step, lane).
  void begin_episode(int64_t round) override;
  at::Tensor act(const EpochReadings& readings) override;
  std::vector<SeedAction> decide(std::span<const LaneReport> lanes) override;

  // After an episode that was played to learn. progress: of the run, from 0 to 1. Returns
  // [policy::kNumUpdateValues] f32 on the device.
  at::Tensor update(double progress);

  const PolicyOptions& options() const { return options_; }
  const policy::PolicyNetwork& network() const { return network_; }
  const policy::Acting& acting() const { return acting_; }
  // What a checkpoint between rounds holds: views.
  std::vector<NamedTensor> state() const;
  // And in the middle of an episode.
  void visit_state(run::StateArchive& archive);

 private:
  void body(const EpochReadings& readings);

  PolicyOptions options_;
  policy::PolicyNetwork network_;
  policy::MaskRules rules_;
  policy::ActionSampler sampler_;
  policy::Ppo ppo_;
  policy::Acting acting_;
  policy::ActingMode mode_ = policy::ActingMode::kLearning;
  at::Tensor carried_;      // [9,L] f64: the choice of each head, then whether the state was illegal
  at::Tensor diagnostics_;  // [policy::kNumUpdateValues] f32: of the last update
  StepGraphs graphs_;       // last: its graphs are gone before what they write to
};

}  // namespace espalier::train
