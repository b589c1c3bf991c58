#include "espalier/core/files/lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "espalier/core/error.h"

namespace espalier {
namespace {

// What the holder wrote: empty for a moment after it took the lock.
std::string holder_in(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t length = pread(descriptor, text.data(), text.size(), 0);
  return length > 0 ? std::string(text.data(), static_cast<size_t>(length)) : "another process";
}

std::string own_name() {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  return fmt::format("process {} on {}", getpid(), host.data());
}

}  // namespace

LockFile::LockFile(const std::string& path, const std::string& what)
    : descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) fail("{}: cannot make '{}': {}", what, path, std::strerror(errno));
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    const std::string holder = holder_in(descriptor_);
    close(descriptor_);
    if (code != EWOULDBLOCK) fail("{}: cannot lock '{}': {}", what, path, std::strerror(code));
    fail("{}: {} works in it (it holds '{}'): wait for it, or stop it", what, holder, path);
  }
  const std::string name = own_name();
  // Only for people to read: a full disk is no reason to refuse.
  if (ftruncate(descriptor_, 0) == 0) [[maybe_unused]]
    const ssize_t written = pwrite(descriptor_, name.data(), name.size(), 0);
}

LockFile::~LockFile() {
  close(descriptor_);
}

std::optional<std::string> lock_holder(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return std::nullopt;
  std::optional<std::string> holder;
  if (flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK) holder = holder_in(descriptor);
  close(descriptor);  // and with it the lock, where it was free
  return holder;
}

}  // namespace espalier
