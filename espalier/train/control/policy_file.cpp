#include "espalier/train/control/policy_file.h"

#include "espalier/policy/checkpoint.h"
#include "espalier/train/control/policy_header.h"

namespace espalier::train {
namespace {

PolicyHeader header_of(const policy::NetworkOptions& network) {
  return {.space = network.space,
          .num_features = network.num_features,
          .embedding_size = network.embedding_size,
          .encoder_size = network.encoder_size,
          .hidden_size = network.hidden_size};
}

}  // namespace

void write_policy(const std::string& path, const std::vector<NamedTensor>& state,
                  const policy::NetworkOptions& network, const Metadata& more) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const NamedTensor& named : state) tensors.emplace_back(named.name, named.tensor.detach());
  Metadata metadata = metadata_of(header_of(network));
  metadata.insert(more.begin(), more.end());
  write_tensors(path, tensors, metadata);
}

policy::NetworkOptions network_options_of(const TensorFile& file) {
  int64_t values = 0;
  for (const auto& [name, tensor] : file.tensors) values += tensor.numel();
  const PolicyHeader header = policy_header(file.metadata, values, file.path);
  return {.space = header.space,
          .num_features = header.num_features,
          .embedding_size = header.embedding_size,
          .encoder_size = header.encoder_size,
          .hidden_size = header.hidden_size};
}

void load_policy(const TensorFile& file, const std::vector<NamedTensor>& state) {
  network_options_of(file);  // that it is a policy at all
  policy::load_state(file.tensors, state, "'" + file.path + "'");
}

}  // namespace espalier::train
