// A regular file opened for reading at any offset, by any thread.
//
// Read with pread and never mapped: a file that shrinks under a mapping ends the process, here it is one
// sentence.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace espalier::data {

class InputFile {
 public:
  // Fails naming the path where it cannot be opened or is not a regular file.
  explicit InputFile(std::string path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size_bytes() const { return size_bytes_; }

  // Up to out.size() bytes from `offset`; fewer only at the end of the file.
  size_t read_some(int64_t offset, std::span<std::byte> out) const;
  // All of `out`, or fails.
  void read_at(int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

}  // namespace espalier::data
