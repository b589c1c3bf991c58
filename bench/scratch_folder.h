// A folder for what a benchmark writes on the way: removed with all it holds, however the benchmark ends.
#pragma once

#include <filesystem>
#include <string>

namespace espalier::bench {

class ScratchFolder {
 public:
  // parent: empty for the system's own; name: what it is for, as part of its name.
  ScratchFolder(const std::string& parent, const std::string& name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace espalier::bench
