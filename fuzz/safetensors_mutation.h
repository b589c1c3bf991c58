// Changes a safetensors file inside its seals: the header's text, with the length before it mended, and
// mostly the length of the data too.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "espalier/core/files/safetensors.h"
#include "fuzz/mutation.h"

namespace espalier::fuzz {

// The end of the last tensor, where the header can be read so far.
inline size_t stated_data_bytes(const std::string& header, size_t otherwise) {
  const auto json = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return otherwise;
  size_t end = 0;
  for (const auto& [name, tensor] : json.items()) {
    if (!tensor.is_object() || !tensor.contains("data_offsets")) continue;
    const auto& offsets = tensor["data_offsets"];
    if (offsets.is_array() && offsets.size() == 2 && offsets[1].is_number_unsigned()) {
      end = std::max(end, offsets[1].get<size_t>());
    }
  }
  return end;
}

// `file` has at least the bytes of the length; the result at most about `max_size`.
inline std::string mutated_safetensors(const std::string& file, size_t max_size, unsigned seed) {
  constexpr size_t kPrefix = kSafetensorsLengthBytes;
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kPrefix);
  length = std::min<uint64_t>(length, file.size() - kPrefix);
  std::string header = file.substr(kPrefix, length);
  std::string values = file.substr(kPrefix + length);
  if (seed % 8 == 1) {
    mutate(values, values.size());
  } else {
    mutate(header, max_size / 2);
  }
  if (seed % 8 != 2) {
    const size_t wanted = stated_data_bytes(header, values.size());
    if (wanted <= max_size) values.resize(wanted);
  }
  length = header.size();
  std::string result(kPrefix, '\0');
  std::memcpy(result.data(), &length, kPrefix);
  return result + header + values;
}

}  // namespace espalier::fuzz
