// Reads safetensors files without torch: datasets and checkpoints. (Writing: safetensors_writer.h.)
//
// A file is: u64 length N of the header (little endian), N bytes of JSON, the bytes of the tensors.
// What parse_safetensors() returns has passed every rule of the format: the tensors cover the data section
// from its first to its last byte, in order, without hole or overlap, each as long as its shape and type say.
// So a byte range that it gives may be read without another check. It allocates in proportion to the header's
// own bytes, never by a size that the header states.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/files/stored_type.h"

namespace espalier {

inline constexpr size_t kSafetensorsLengthBytes = 8;
inline constexpr uint64_t kSafetensorsMaxHeaderBytes = 100'000'000;  // as the reference implementation
inline constexpr const char* kSafetensorsMetadataKey = "__metadata__";

struct TensorSpec {
  std::string name;
  StoredType type = StoredType::kU8;
  std::vector<int64_t> shape;  // empty: one value

  // Fails naming the tensor where the product does not fit into 64 bits.
  int64_t size_bytes() const;
};

struct TensorEntry : TensorSpec {
  int64_t offset_bytes = 0;  // from the start of the file
  int64_t length_bytes = 0;  // equals size_bytes()
};

using Metadata = std::map<std::string, std::string>;

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // in the order of their bytes
  Metadata metadata;
};

// `file` is the whole file, `path` its name for messages. Fails with one sentence for the first broken rule.
SafetensorsHeader parse_safetensors(std::span<const std::byte> file, std::string_view path);

}  // namespace espalier
