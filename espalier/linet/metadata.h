// What the metadata of a network's file says: which network its tensors belong to. Free of torch, so that the
// reader of outside bytes can be fuzzed alone; file.h has the tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/core/files/safetensors.h"

namespace espalier::linet {

// A LinetShape as far as a file keeps it.
struct LinetHeader {
  std::vector<int64_t> streams;  // [S]: channels of each
  bool is_bottleneck = false;
  std::vector<int64_t> stages;  // blocks of each
  std::vector<int64_t> widths;  // one per stage
  int64_t num_classes = 0;
};

Metadata metadata_of(const LinetHeader& header);

// Fails, naming the file and the key, for a file that is no network of ours, and for one of more values than
// `values`, all that the file's tensors hold: nobody allocates what a damaged number says.
LinetHeader linet_header(const Metadata& metadata, int64_t values, const std::string& file);

}  // namespace espalier::linet
