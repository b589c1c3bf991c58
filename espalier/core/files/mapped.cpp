#include "espalier/core/files/mapped.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "espalier/core/error.h"

namespace espalier {
namespace {

std::string reason_of(int error) {
  return std::generic_category().message(error);
}

struct OpenFile {
  int value;
  ~OpenFile() {
    if (value >= 0) close(value);
  }
};

}  // namespace

MappedFile map_file(const std::string& path) {
  // O_NONBLOCK: opening a FIFO by mistake must give the sentence below, not wait for a writer.
  const OpenFile file{open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.value < 0) fail("{}: cannot be opened: {}", path, reason_of(errno));
  struct stat status {};
  if (fstat(file.value, &status) != 0) fail("{}: cannot be examined: {}", path, reason_of(errno));
  if (!S_ISREG(status.st_mode)) {
    fail("{}: is {}, want a regular file", path,
         S_ISDIR(status.st_mode) ? "a directory" : "a device, a pipe or a socket");
  }
  const auto size_bytes = static_cast<size_t>(status.st_size);
  if (size_bytes == 0) return {};

  void* address = mmap(nullptr, size_bytes, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (address == MAP_FAILED) {
    fail("{}: cannot be mapped into memory ({} bytes): {}", path, size_bytes, reason_of(errno));
  }
  const auto unmap = [size_bytes](const std::byte* begin) {
    munmap(const_cast<std::byte*>(begin), size_bytes);
  };
  return {{static_cast<const std::byte*>(address), unmap}, size_bytes};
}

}  // namespace espalier
