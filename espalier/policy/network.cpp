#include "espalier/policy/network.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <numbers>

#include "espalier/policy/orthogonal.h"

namespace espalier::policy {
namespace {

constexpr const char* kGateNames[] = {"input", "forget", "cell", "output"};

// Nearly uniform at first, so that the first rounds explore; a value of full scale.
constexpr double kHeadGain = 0.01, kValueGain = 1;
// For a layer before a ReLU, which drops half of the variance.
constexpr double kReluGain = std::numbers::sqrt2;
// Small beside features of about 1.
constexpr double kEmbeddingDeviation = 0.1;

// Selects and does not multiply: a cleared state is 0 though it was NaN.
void clear_(RecurrentState& state, const at::Tensor& clears) {
  const at::Tensor cleared = clears.unsqueeze(1);
  state.hidden = at::where(cleared, 0, state.hidden);
  state.cell = at::where(cleared, 0, state.cell);
}

}  // namespace

PolicyNetwork::PolicyNetwork(const NetworkOptions& options) : options_(options) {
  const ActionSpace& space = options.space;
  const int64_t encoder = options.encoder_size, hidden = options.hidden_size;
  TORCH_CHECK(options.num_features >= 1 && encoder >= 1 && hidden >= 1 && options.embedding_size >= 1,
              "PolicyNetwork: num_features, embedding_size, encoder_size, hidden_size: want 1 or more, got ",
              options.num_features, ", ", options.embedding_size, ", ", encoder, ", ", hidden);
  TORCH_CHECK(space.num_slots >= 1 && space.num_blueprints >= 1,
              "PolicyNetwork: num_slots, num_blueprints: want 1 or more, got ", space.num_slots, ", ",
              space.num_blueprints);
  const c10::NoGradGuard no_grad;
  embedding_ = add("embedding.weight", {space.num_blueprints + 1, options.embedding_size});
  init_normal_(embedding_, kEmbeddingDeviation, options.seed, "embedding.weight");
  encoder_weight_ =
      add("encoder.weight", {encoder, options.num_features + space.num_slots * options.embedding_size});
  init_orthogonal_(encoder_weight_, kReluGain, options.seed, "encoder.weight");
  encoder_bias_ = add("encoder.bias", {encoder});
  norm_weight_ = add("norm.weight", {encoder});
  norm_weight_.fill_(1);
  norm_bias_ = add("norm.bias", {encoder});
  input_weight_ = add("lstm.input_weight", {4 * hidden, encoder});
  hidden_weight_ = add("lstm.hidden_weight", {4 * hidden, hidden});
  for (int64_t gate = 0; gate < 4; ++gate) {  // each gate a matrix of its own
    const std::string suffix = std::string(".") + kGateNames[gate];
    init_orthogonal_(input_weight_.narrow(0, gate * hidden, hidden), 1, options.seed,
                     "lstm.input_weight" + suffix);
    init_orthogonal_(hidden_weight_.narrow(0, gate * hidden, hidden), 1, options.seed,
                     "lstm.hidden_weight" + suffix);
  }
  gate_bias_ = add("lstm.bias", {4 * hidden});
  // Remembers by default (Jozefowicz et al., ICML 2015).
  gate_bias_.narrow(0, hidden, hidden).fill_(1);
  heads_weight_ = add("heads.weight", {space.num_choices(), hidden});
  for (int i = 0; i < kNumHeads; ++i) {
    const auto head = static_cast<Head>(i);
    init_orthogonal_(heads_weight_.narrow(0, space.offset(head), space.size(head)), kHeadGain, options.seed,
                     std::string("heads.weight.") + kHeadNames[i]);
  }
  heads_bias_ = add("heads.bias", {space.num_choices()});
  value_weight_ = add("value.weight", {1, hidden});
  init_orthogonal_(value_weight_, kValueGain, options.seed, "value.weight");
  value_bias_ = add("value.bias", {1});
  for (NamedTensor& parameter : parameters_) parameter.tensor.set_requires_grad(true);
}

at::Tensor PolicyNetwork::add(const std::string& name, at::IntArrayRef sizes) {
  const at::Tensor tensor = at::zeros(sizes, options_.tensors);
  parameters_.push_back({name, tensor});
  return tensor;
}

RecurrentState PolicyNetwork::initial_state(int64_t lanes) const {
  return {.hidden = at::zeros({lanes, options_.hidden_size}, options_.tensors),
          .cell = at::zeros({lanes, options_.hidden_size}, options_.tensors)};
}

at::Tensor PolicyNetwork::encode(const Observation& seen) const {
  TORCH_CHECK(seen.features.size(-1) == options_.num_features, "PolicyNetwork: features: want [...,",
              options_.num_features, "], got ", seen.features.sizes());
  TORCH_CHECK(seen.blueprints.size(-1) == options_.space.num_slots &&
                  seen.blueprints.sizes().slice(0, seen.blueprints.dim() - 1) ==
                      seen.features.sizes().slice(0, seen.features.dim() - 1),
              "PolicyNetwork: blueprints: want the leading axes of features and [...,",
              options_.space.num_slots, "], got ", seen.blueprints.sizes());
  static_assert(kNoBlueprint == -1, "row 0 of the embedding is no seed's");
  const at::Tensor embedded = at::embedding(embedding_, seen.blueprints + 1).flatten(-2);
  const at::Tensor input = at::cat({seen.features, embedded}, -1);
  const at::Tensor linear = at::linear(input, encoder_weight_, encoder_bias_);
  return at::layer_norm(linear, {options_.encoder_size}, norm_weight_, norm_bias_).relu();
}

// Hochreiter and Schmidhuber (1997) with the forget gate of Gers et al. (2000), as torch.nn.LSTM has it.
at::Tensor PolicyNetwork::recur(const at::Tensor& gates_from_input, RecurrentState& state) const {
  const auto gates = at::addmm(gates_from_input, state.hidden, hidden_weight_.t()).chunk(4, 1);
  state.cell = gates[1].sigmoid() * state.cell + gates[0].sigmoid() * gates[2].tanh();
  state.hidden = gates[3].sigmoid() * state.cell.tanh();
  return state.hidden;
}

NetworkOutput PolicyNetwork::decide(const at::Tensor& hidden) const {
  return {.logits = at::linear(hidden, heads_weight_, heads_bias_),
          .value = at::linear(hidden, value_weight_, value_bias_).squeeze(-1)};
}

NetworkOutput PolicyNetwork::step(const Observation& seen, RecurrentState& state,
                                  const at::Tensor& clears) const {
  if (clears.defined()) clear_(state, clears);
  return decide(recur(at::linear(encode(seen), input_weight_, gate_bias_), state));
}

NetworkOutput PolicyNetwork::sequence(const Observation& seen, RecurrentState start,
                                      const at::Tensor& clears) const {
  TORCH_CHECK(seen.features.dim() == 3, "PolicyNetwork: features: want [L,T,F], got ", seen.features.sizes());
  TORCH_CHECK(clears.scalar_type() == at::kBool && clears.sizes() == seen.features.sizes().slice(0, 2),
              "PolicyNetwork: clears: want ", seen.features.sizes().slice(0, 2), " Bool, got ",
              clears.sizes(), " ", clears.scalar_type());
  // What does not depend on the memory is computed for all steps at once. unbind() and not select(): its
  // gradient is one stack, not a sum of T tensors of the whole size.
  const std::vector<at::Tensor> gates = at::linear(encode(seen), input_weight_, gate_bias_).unbind(1);
  const std::vector<at::Tensor> cleared = clears.unbind(1);
  std::vector<at::Tensor> hidden;
  hidden.reserve(gates.size());
  for (size_t t = 0; t < gates.size(); ++t) {
    clear_(start, cleared[t]);
    hidden.push_back(recur(gates[t], start));
  }
  return decide(at::stack(hidden, 1));
}

}  // namespace espalier::policy
