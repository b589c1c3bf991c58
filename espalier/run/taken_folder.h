// The directory that a run works in: made where it is missing, locked, and removed again if a start fails.
//
// Kept true: one process works in a directory; a start that fails leaves nothing behind, neither the folder
// nor folders around it that were made for it, nor a lock.
#pragma once

#include <filesystem>
#include <optional>

#include "espalier/core/files/lock.h"

namespace espalier::run {

class TakenFolder {
 public:
  // Refuses one in which another process works.
  explicit TakenFolder(const std::filesystem::path& path);
  ~TakenFolder();
  TakenFolder(const TakenFolder&) = delete;
  TakenFolder& operator=(const TakenFolder&) = delete;

  void keep() { is_kept_ = true; }  // the run has begun: what was made stays
  void unlock() { lock_.reset(); }

 private:
  void remove_what_was_made() const;

  std::filesystem::path path_;
  std::filesystem::path first_made_;  // the outermost folder that was not there before; empty: all were
  bool made_lock_;                    // the lock was not there before
  bool is_kept_ = false;
  std::optional<LockFile> lock_;
};

}  // namespace espalier::run
