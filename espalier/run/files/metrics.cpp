#include "espalier/run/files/metrics.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"

namespace espalier::run {

MetricsFile::MetricsFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) fail("'{}': cannot be made: {}", path_.string(), std::strerror(errno));
  struct stat facts {};
  if (fstat(descriptor_, &facts) != 0) fail("'{}': cannot be read: {}", path_.string(), std::strerror(errno));
  size_bytes_ = facts.st_size;
}

MetricsFile::~MetricsFile() {
  close(descriptor_);
}

void MetricsFile::cut_to(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (size_bytes_ < bytes)
    fail("'{}': has {} bytes, and had {} at the checkpoint: lines of the run are lost; see --restart fresh",
         path_.string(), size_bytes_, bytes);
  if (ftruncate(descriptor_, bytes) != 0)
    fail("'{}': cannot be cut to {} bytes: {}", path_.string(), bytes, std::strerror(errno));
  size_bytes_ = bytes;
}

int64_t MetricsFile::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return size_bytes_ + static_cast<int64_t>(waiting_.size());
}

std::string MetricsFile::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

void MetricsFile::add(const nlohmann::ordered_json& line) {
  const std::lock_guard lock(mutex_);
  waiting_ += line.dump() + '\n';
  write_waiting();
}

void MetricsFile::write_waiting() {
  trouble_.clear();
  size_t done = 0;
  while (done < waiting_.size() && trouble_.empty()) {
    const ssize_t written = pwrite(descriptor_, waiting_.data() + done, waiting_.size() - done,
                                   size_bytes_ + static_cast<int64_t>(done));
    if (written > 0)
      done += static_cast<size_t>(written);
    else if (errno != EINTR)
      trouble_ = std::strerror(errno);
  }
  if (trouble_.empty()) {
    size_bytes_ += static_cast<int64_t>(waiting_.size());
    waiting_.clear();
  } else if (done > 0) {
    // No torn line stays; all of it is tried again.
    [[maybe_unused]] const int cut = ftruncate(descriptor_, size_bytes_);
  }
}

void MetricsFile::flush() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) write_waiting();
  if (!trouble_.empty())
    fail("'{}': {} bytes of results cannot be written: {}", path_.string(), waiting_.size(), trouble_);
  struct stat own {
  }, named{};
  if (fstat(descriptor_, &own) != 0 || stat(path_.c_str(), &named) != 0 || own.st_ino != named.st_ino ||
      own.st_dev != named.st_dev)
    fail("'{}': is no longer where it was: did someone remove the run directory? Its results are lost",
         path_.string());
  if (fsync(descriptor_) != 0)
    fail("'{}': cannot be flushed to the disk: {}", path_.string(), std::strerror(errno));
}

}  // namespace espalier::run
