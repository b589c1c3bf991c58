#include "espalier/run/taken_folder.h"

#include <fmt/format.h>

#include <system_error>

#include "espalier/run/location.h"

namespace espalier::run {

namespace fs = std::filesystem;

TakenFolder::TakenFolder(const fs::path& path)
    : path_(path), first_made_(first_missing(path)), made_lock_(!fs::exists(path / "lock")) {
  make_folder(path_);
  lock_.emplace((path_ / "lock").string(), fmt::format("run directory '{}'", path_.string()));
}

TakenFolder::~TakenFolder() {
  if (!is_kept_) remove_what_was_made();
}

void TakenFolder::remove_what_was_made() const {
  std::error_code ignored;
  if (first_made_.empty()) {
    if (made_lock_) fs::remove(path_ / "lock", ignored);
    return;
  }
  fs::remove_all(path_, ignored);
  // Folders around it, unless another run has come into them meanwhile.
  for (fs::path around = path_; around != first_made_ && around.has_relative_path();) {
    around = around.parent_path();
    if (!fs::remove(around, ignored)) break;
  }
}

}  // namespace espalier::run
