// What an image folder may hold. The input is a list of paths, one a line, made as empty files in a folder of
// their own (a path that ends in a slash: as a folder). Held: every class of a listing that was accepted has
// an image in every split, and every field as many files as there are labels. File names may hold line breaks
// and the like, and messages show them as they are: their text is not checked.
#include "espalier/data/sources/images/folder_listing.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "fuzz/target.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace espalier;
namespace fs = std::filesystem;

bool stays_inside(std::string_view path) {
  return !path.empty() && path.front() != '/' && path.find("..") == path.npos && path.find('\0') == path.npos;
}

void make_entry(const fs::path& root, std::string_view path) {
  std::error_code ignored;  // a name that is too long, or a file where a folder is wanted
  if (path.ends_with('/')) {
    fs::create_directories(root / path, ignored);
    return;
  }
  fs::create_directories((root / path).parent_path(), ignored);
  const std::ofstream file(root / path);
}

void check_split(const data::FolderListing& listing, const data::FolderSplit& split) {
  fuzz::require(split.files.size() == listing.fields.size(), "every field has files");
  for (const auto& files : split.files) {
    fuzz::require(files.size() == split.labels.size(), "every sample has a file in every field");
  }
  fuzz::require(std::is_sorted(split.labels.begin(), split.labels.end()), "samples come class by class");
  for (int64_t c = 0; c < static_cast<int64_t>(listing.class_names.size()); ++c) {
    fuzz::require(std::binary_search(split.labels.begin(), split.labels.end(), c), "no class is empty");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int kMaxEntries = 32;
  const support::TemporaryFolder folder;
  std::string_view rest = fuzz::text_of(data, size);
  for (int i = 0; i < kMaxEntries && !rest.empty(); ++i) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view path = rest.substr(0, std::min<size_t>(end, 200));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (stays_inside(path)) make_entry(folder.path(), path);
  }
  try {
    const data::FolderListing listing = data::list_folder(folder.string());
    check_split(listing, listing.train);
    check_split(listing, listing.test);
  } catch (const Error&) {
  }
  return 0;
}
