// Writes safetensors files without torch, in one pass.
//
// Kept true: the file appears under its name only when every byte that its header promises was written
// (atomic.h); the header begins with `{` and is padded with spaces to a multiple of 8 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "espalier/core/files/atomic.h"
#include "espalier/core/files/safetensors.h"

namespace espalier {

// The header is known first, the bytes come piece by piece. Tensors lie in the given order: put those of
// wider types first, and all are aligned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<TensorSpec>& tensors,
                    const Metadata& metadata);

  // The next bytes of the tensors, one after the other, in pieces of any length.
  void write(std::span<const std::byte> bytes);
  // Fails when bytes are missing.
  void commit();

  int64_t data_bytes() const { return data_bytes_; }  // all tensors together

 private:
  std::string path_;
  int64_t data_bytes_ = 0;
  int64_t written_bytes_ = 0;
  AtomicFile file_;
};

}  // namespace espalier
