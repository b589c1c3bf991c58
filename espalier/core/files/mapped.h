// A file mapped read-only into memory.
//
// Kept true: only regular files are mapped; the bytes stay mapped while any copy of `data` (or a shared_ptr
// that aliases it) lives, even when the file is renamed over or deleted meanwhile. A file that someone
// shortens in place while it is mapped raises SIGBUS on access, as for every mapping: our own writers never
// do (they replace whole files, see atomic.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace espalier {

struct MappedFile {
  std::shared_ptr<const std::byte>
      data;  // [size_bytes]; starts on a page boundary; null when the file is empty
  size_t size_bytes = 0;

  std::span<const std::byte> bytes() const { return {data.get(), size_bytes}; }
};

// Fails with one sentence that names the path and the reason.
MappedFile map_file(const std::string& path);

}  // namespace espalier
