// Policies in files: every tensor of one, and in the metadata what it was made for, so that it can be built
// again from the file alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/core/files/safetensors.h"
#include "espalier/policy/network.h"
#include "espalier/tensor/file.h"

namespace espalier::train {

// The file appears under its name as a whole or not at all. state: policy::state_of(); more: goes into the
// metadata besides.
void write_policy(const std::string& path, const std::vector<NamedTensor>& state,
                  const policy::NetworkOptions& network, const Metadata& more = {});

// The network that the file's policy has: action space, features and sizes. Fails naming the file and the
// key.
policy::NetworkOptions network_options_of(const TensorFile& file);

// Into a policy of the same sizes: everything or nothing.
void load_policy(const TensorFile& file, const std::vector<NamedTensor>& state);

}  // namespace espalier::train
