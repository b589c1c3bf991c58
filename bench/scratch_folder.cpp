#include "bench/scratch_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

namespace espalier::bench {

namespace fs = std::filesystem;

ScratchFolder::ScratchFolder(const std::string& parent, const std::string& name)
    : path_((parent.empty() ? fs::temp_directory_path() : fs::path(parent)) /
            fmt::format("espalier-{}-{}", name, getpid())) {
  fs::create_directories(path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace espalier::bench
