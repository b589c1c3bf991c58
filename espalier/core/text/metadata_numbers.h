// Numbers in the metadata of a safetensors file, which holds text alone. Whoever wrote the file, and whatever
// became of it since: what is missing, no number or out of range fails with one sentence that names the file
// and the key.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/core/files/safetensors.h"

namespace espalier {

struct NumberRange {
  int64_t low;
  int64_t high;
};

// `file` is the path that a message names.
int64_t metadata_number(const Metadata& metadata, const std::string& key, const NumberRange& range,
                        const std::string& file);

// At least one, with commas between.
std::vector<int64_t> metadata_numbers(const Metadata& metadata, const std::string& key,
                                      const NumberRange& range, const std::string& file);

}  // namespace espalier
