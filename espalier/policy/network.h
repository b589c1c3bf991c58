// The policy's network: blueprint embeddings and features -> linear -> layer norm -> ReLU -> LSTM -> the
// logits of all heads, and a value V(s) that no action enters.
//
// Kept true: first values depend on (seed, sizes) alone; a sequence gives the numbers of its steps taken one
// by one, within rounding; no tensor is read on the host; parameters stay in plain row-major layout.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/policy/action/space.h"
#include "espalier/tensor/named.h"

namespace espalier::policy {

struct NetworkOptions {
  ActionSpace space;
  int64_t num_features = 1;  // F: of an observation, all slots' included
  int64_t embedding_size = 4;
  int64_t encoder_size = 512;  // E
  int64_t hidden_size = 512;   // H
  uint64_t seed = 0;
  at::TensorOptions tensors;  // device and type (f32, or f64 for tests)
};

// What the policy sees, for any leading axes.
struct Observation {
  at::Tensor features;    // [...,F] f32
  at::Tensor blueprints;  // [...,S] i64: the index in each slot, or kNoBlueprint
};

// What an LSTM remembers. Zeros when an episode begins.
struct RecurrentState {
  at::Tensor hidden;  // [L,H] f32
  at::Tensor cell;    // [L,H] f32
};

struct NetworkOutput {
  at::Tensor logits;  // [...,A] f32, A = space.num_choices(): the heads side by side
  at::Tensor value;   // [...] f32, in units of the value normaliser
};

class PolicyNetwork {
 public:
  explicit PolicyNetwork(const NetworkOptions& options);

  const NetworkOptions& options() const { return options_; }
  RecurrentState initial_state(int64_t lanes) const;  // zeros

  // One step of L lanes; `state` becomes the one after it. clears: [L] bool, lanes whose episode begins here
  // and whose memory is emptied first; or undefined: none.
  NetworkOutput step(const Observation& seen, RecurrentState& state, const at::Tensor& clears = {}) const;

  // T steps of L lanes at once. seen: [L,T,...]; start: the state before the first; clears: [L,T] bool.
  NetworkOutput sequence(const Observation& seen, RecurrentState start, const at::Tensor& clears) const;

  // Leaves that ask for gradients, in a fixed order, by the names they have in files.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const at::Tensor& value_weight() const { return value_weight_; }  // [1,H], rescaled with the normaliser
  const at::Tensor& value_bias() const { return value_bias_; }      // [1]

 private:
  at::Tensor add(const std::string& name, at::IntArrayRef sizes);
  at::Tensor encode(const Observation& seen) const;                                   // [...,E]
  at::Tensor recur(const at::Tensor& gates_from_input, RecurrentState& state) const;  // [L,H]
  NetworkOutput decide(const at::Tensor& hidden) const;

  NetworkOptions options_;
  std::vector<NamedTensor> parameters_;
  at::Tensor embedding_;       // [blueprints + 1, embedding_size]; row 0: no seed
  at::Tensor encoder_weight_;  // [E, F + S * embedding_size]
  at::Tensor encoder_bias_;    // [E]
  at::Tensor norm_weight_;     // [E]
  at::Tensor norm_bias_;       // [E]
  at::Tensor input_weight_;    // [4H,E]; gates in torch's order: input, forget, cell, output
  at::Tensor hidden_weight_;   // [4H,H]
  at::Tensor gate_bias_;       // [4H]
  at::Tensor heads_weight_;    // [A,H]
  at::Tensor heads_bias_;      // [A]
  at::Tensor value_weight_;    // [1,H]
  at::Tensor value_bias_;      // [1]
};

}  // namespace espalier::policy
