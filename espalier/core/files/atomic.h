// A file that appears whole or not at all.
//
// Kept true: until commit() returns, the path holds what it held before (nothing, or the old file); after it,
// the new bytes, flushed to the disk, name included. Without commit() nothing stays behind. Where the file
// system has nameless files (O_TMPFILE: ext4, xfs, btrfs, tmpfs) not even a killed process leaves anything;
// elsewhere a killed one may leave `.espalier-<pid>-<n>.tmp` in the directory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

class AtomicFile {
 public:
  // Opens the temporary file in the directory of `path`. An existing path must be a regular file (or a link
  // to one, which is followed): a device or a directory is never replaced.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text);

  // Flushes the file, gives it its name, flushes the directory. Nothing may be written afterwards.
  void commit();

  int64_t size_bytes() const { return size_bytes_; }

 private:
  void give_temporary_name();

  std::string path_;       // what the user named: for messages
  std::string target_;     // with links followed
  std::string directory_;  // the one that holds target_
  std::string temporary_;  // empty while the file has no name
  int descriptor_ = -1;
  int64_t size_bytes_ = 0;
};

}  // namespace espalier
