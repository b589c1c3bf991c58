#include "espalier/data/sources/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "espalier/core/error.h"

namespace espalier::data {

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer for ever.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) {
    fail("{}: cannot be opened: {}; check the path and its permissions", path_,
         std::generic_category().message(errno));
  }
  struct stat status = {};
  if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(descriptor_);
    fail("{}: not a regular file; expected one", path_);
  }
  size_bytes_ = status.st_size;
}

InputFile::~InputFile() {
  close(descriptor_);
}

size_t InputFile::read_some(int64_t offset, std::span<std::byte> out) const {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t got =
        pread(descriptor_, out.data() + done, out.size() - done, offset + static_cast<int64_t>(done));
    if (got == 0) break;
    if (got < 0) {
      if (errno == EINTR) continue;
      fail("{}: cannot be read at byte {}: {}; check the disk", path_, offset + static_cast<int64_t>(done),
           std::generic_category().message(errno));
    }
    done += static_cast<size_t>(got);
  }
  return done;
}

void InputFile::read_at(int64_t offset, std::span<std::byte> out) const {
  const size_t got = read_some(offset, out);
  if (got != out.size()) {
    fail("{}: ends at byte {}, expected {} bytes; it changed while it was read, try again", path_,
         offset + static_cast<int64_t>(got), size_bytes_);
  }
}

}  // namespace espalier::data
