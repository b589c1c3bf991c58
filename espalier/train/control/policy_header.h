// What the metadata of a policy's file says: which network its tensors belong to. Free of torch, so that the
// reader of outside bytes can be fuzzed alone; policy_file.h has the tensors.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/core/files/safetensors.h"
#include "espalier/policy/action/space.h"

namespace espalier::train {

struct PolicyHeader {
  policy::ActionSpace space;
  int64_t num_features = 1;
  int64_t embedding_size = 1;
  int64_t encoder_size = 1;
  int64_t hidden_size = 1;
};

Metadata metadata_of(const PolicyHeader& header);

// Fails, naming the file and the key, for a file that is no policy of ours, and for sizes that ask for a
// larger network than `values`, all that the file's tensors hold: nobody allocates what a damaged number
// says.
PolicyHeader policy_header(const Metadata& metadata, int64_t values, const std::string& file);

// The rounds that the policy learned from.
Metadata with_rounds(Metadata metadata, int64_t rounds);
int64_t policy_rounds(const Metadata& metadata, const std::string& file);

}  // namespace espalier::train
