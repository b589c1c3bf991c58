#include "espalier/core/files/atomic.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "espalier/core/error.h"

namespace espalier {
namespace {

// The usual permissions; the umask takes its share.
constexpr mode_t kMode = 0666;

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

// A name no other thread or living process uses. It does not contain the target's own name, which may already
// be as long as the file system allows.
std::string next_temporary_name(const std::string& directory) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format("{}/.espalier-{}-{}.tmp", directory, getpid(), counter.fetch_add(1));
}

// A leftover of a killed process whose id came round again is stepped over, hence more than one try.
constexpr int kNameTries = 100;

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), target_(path) {
  if (path.empty()) fail("cannot write a file: its name is empty");
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) {
      fail("{}: cannot be written: it is {}, want a regular file or a new name", path,
           S_ISDIR(status.st_mode) ? "a directory" : "a device, a pipe or a socket");
    }
    std::error_code error;
    const auto real = std::filesystem::canonical(path, error);
    if (error) fail("{}: cannot be written: {}", path, error.message());
    target_ = real.string();
  } else if (errno != ENOENT) {
    fail("{}: cannot be written: {}", path, reason_of(errno));
  } else if (path.back() == '/') {
    fail("{}: cannot be written: a file name must not end with a slash", path);
  }
  directory_ = std::filesystem::path(target_).parent_path().string();
  if (directory_.empty()) directory_.push_back('.');

#ifdef O_TMPFILE
  descriptor_ = open(directory_.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, kMode);
  if (descriptor_ >= 0) return;
#endif
  for (int tries = 0; tries < kNameTries && descriptor_ < 0; ++tries) {
    std::string name = next_temporary_name(directory_);
    descriptor_ = open(name.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, kMode);
    if (descriptor_ >= 0) {
      temporary_ = std::move(name);
    } else if (errno != EEXIST) {
      break;
    }
  }
  if (descriptor_ < 0) fail("{}: cannot create a file in {}: {}", path_, directory_, reason_of(errno));
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) close(descriptor_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

void AtomicFile::write(std::string_view text) {
  write(std::as_bytes(std::span(text)));
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  if (descriptor_ < 0) fail("{}: cannot be written: it was already committed", path_);
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("{}: cannot be written after {} bytes: {}", path_, size_bytes_, reason_of(errno));
    }
    size_bytes_ += written;
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::give_temporary_name() {
  const std::string nameless = fmt::format("/proc/self/fd/{}", descriptor_);
  for (int tries = 0; tries < kNameTries; ++tries) {
    std::string name = next_temporary_name(directory_);
    if (linkat(AT_FDCWD, nameless.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = std::move(name);
      return;
    }
    if (errno != EEXIST) break;
  }
  fail("{}: cannot be given its name: {}", path_, reason_of(errno));
}

void AtomicFile::commit() {
  if (descriptor_ < 0) fail("{}: cannot be committed: it already was", path_);
  if (fsync(descriptor_) != 0) fail("{}: cannot be flushed to the disk: {}", path_, reason_of(errno));
  // A nameless file cannot replace a named one in one step: name it first, then rename.
  if (temporary_.empty()) give_temporary_name();
  // close() may report a late error of a network file system.
  if (close(std::exchange(descriptor_, -1)) != 0) {
    fail("{}: cannot be closed: {}", path_, reason_of(errno));
  }
  if (std::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail("{}: cannot be given its name: {}", path_, reason_of(errno));
  }
  temporary_.clear();

  const int directory = open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) fail("{}: cannot be opened to flush it: {}", directory_, reason_of(errno));
  const int result = fsync(directory);
  const int error = errno;
  close(directory);
  // EINVAL: a file system whose directories cannot be flushed; nothing more can be done there.
  if (result != 0 && error != EINVAL)
    fail("{}: cannot be flushed to the disk: {}", directory_, reason_of(error));
}

}  // namespace espalier
