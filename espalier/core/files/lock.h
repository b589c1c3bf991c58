// A lock that one process holds and that dies with it: an advisory lock on a file (flock), which the system
// releases however the process ends. So a lock is never stale, and the file may stay where it is.
#pragma once

#include <optional>
#include <string>

namespace espalier {

class LockFile {
 public:
  // Takes the lock, or says who holds it in an error: `what` begins the sentence. Makes the file.
  LockFile(const std::string& path, const std::string& what);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  int descriptor_ = -1;
};

// Who holds the lock now, as that process wrote itself down ("process 4711 on host"), if anybody does.
std::optional<std::string> lock_holder(const std::string& path);

}  // namespace espalier
