// Changes a value of a safetensors file's metadata, and leaves the rest of the file whole: what a reader of
// the metadata sees is then mostly a sound file with one strange text.
#pragma once

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>

#include "espalier/core/files/safetensors.h"
#include "fuzz/safetensors_mutation.h"

namespace espalier::fuzz {

// The file as it was where it has no metadata.
inline std::string with_mutated_metadata(const std::string& file, size_t max_size, unsigned seed) {
  constexpr size_t kPrefix = kSafetensorsLengthBytes;
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kPrefix);
  length = std::min<uint64_t>(length, file.size() - kPrefix);
  const std::string values = file.substr(kPrefix + length);
  using Json = nlohmann::ordered_json;
  Json header = Json::parse(file.substr(kPrefix, length), nullptr, /*allow_exceptions=*/false);
  if (!header.is_object() || !header.contains(kSafetensorsMetadataKey)) return file;
  Json& metadata = header[kSafetensorsMetadataKey];
  if (!metadata.is_object() || metadata.empty()) return file;
  Json& value = *std::next(metadata.begin(), static_cast<std::ptrdiff_t>(seed % metadata.size()));
  if (!value.is_string()) return file;
  std::string text = value.get<std::string>();
  mutate(text, std::min<size_t>(max_size / 4, text.size() + 16));
  value = text;
  const std::string changed = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  length = changed.size();
  std::string result(kPrefix, '\0');
  std::memcpy(result.data(), &length, kPrefix);
  return result + changed + values;
}

// For LLVMFuzzerCustomMutator: now the metadata, now the header's text, now raw bytes.
inline size_t mutate_tensor_file(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (!mutates_raw(seed) && size >= kSafetensorsLengthBytes) {
    const std::string file(reinterpret_cast<const char*>(data), size);
    const unsigned choice = seed / 8;
    const std::string changed = choice % 4 == 0 ? mutated_safetensors(file, max_size, choice / 4)
                                                : with_mutated_metadata(file, max_size, choice / 4);
    const size_t stored = store(changed, data, max_size);
    if (stored != 0) return stored;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

// All values that the tensors of a header hold.
inline int64_t num_values(const SafetensorsHeader& header) {
  int64_t values = 0;
  for (const TensorEntry& tensor : header.tensors) values += tensor.length_bytes / bytes_of(tensor.type);
  return values;
}

}  // namespace espalier::fuzz
