#include "espalier/data/sources/images/folder_listing.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "espalier/core/error.h"

namespace espalier::data {
namespace {

namespace fs = std::filesystem;

enum class EntryKind { kFile, kFolder, kOther };

struct Entry {
  std::string name;
  EntryKind kind;

  bool is_hidden() const { return name.starts_with('.'); }
  bool is_folder() const { return kind == EntryKind::kFolder; }
};

// Sorted by name, byte by byte, so the same on every machine and in every locale. Links are followed.
std::vector<Entry> list_entries(const fs::path& folder) {
  std::vector<Entry> entries;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (; !error && it != fs::directory_iterator(); it.increment(error)) {
    std::error_code status_error;
    EntryKind kind = EntryKind::kOther;
    if (it->is_regular_file(status_error)) {
      kind = EntryKind::kFile;
    } else if (it->is_directory(status_error)) {
      kind = EntryKind::kFolder;
    }
    Entry entry{.name = it->path().filename().string(), .kind = kind};
    if (status_error && !entry.is_hidden()) {
      fail("folder: '{}' cannot be read: {}", it->path().string(), status_error.message());
    }
    entries.push_back(std::move(entry));
  }
  if (error) fail("folder: '{}' cannot be listed: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  return entries;
}

bool has_extension(std::string_view name, std::span<const std::string_view> extensions) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return false;
  std::string extension(name.substr(dot));
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

bool is_image(std::string_view name) {
  constexpr std::array<std::string_view, 3> kRead = {".jpg", ".jpeg", ".png"};
  return has_extension(name, kRead);
}

bool is_other_image(std::string_view name) {
  constexpr std::array<std::string_view, 12> kNotRead = {".bmp", ".gif", ".tif", ".tiff", ".webp", ".ppm",
                                                         ".pgm", ".pnm", ".jp2", ".avif", ".heic", ".exr"};
  return has_extension(name, kNotRead);
}

std::string stem_of(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;  // what cannot be looked at is reported when it is listed
  return fs::is_directory(path, ignored);
}

// "'a', 'b' and 7 more".
std::string quoted(const std::vector<std::string>& names) {
  constexpr size_t kShown = 5;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) {
    text += fmt::format("{}'{}'", i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kShown) text += fmt::format(" and {} more", names.size() - kShown);
  return text;
}

std::vector<std::string> list_classes(const fs::path& split) {
  std::vector<std::string> classes;
  for (const Entry& entry : list_entries(split)) {
    const std::string path = (split / entry.name).string();
    if (entry.is_folder() && entry.is_hidden()) {
      for (const Entry& inside : list_entries(path)) {
        if (is_image(inside.name)) {
          fail(
              "folder: '{}' is hidden and holds images ('{}'); a class must not begin with a dot: rename it, "
              "or "
              "move it elsewhere",
              path, inside.name);
        }
      }
    } else if (entry.is_folder()) {
      classes.push_back(entry.name);
    } else if (!entry.is_hidden() && is_image(entry.name)) {
      fail("folder: '{}' lies in no class; move it into '{}'", path, (split / "<class>").string());
    }
  }
  return classes;
}

std::vector<std::string> list_images(const fs::path& class_folder) {
  std::vector<std::string> names;
  for (const Entry& entry : list_entries(class_folder)) {
    if (entry.is_hidden()) continue;
    const std::string path = (class_folder / entry.name).string();
    if (entry.is_folder()) {
      fail("folder: '{}' is a folder inside a class; the images of a class lie directly in its folder", path);
    }
    if (is_other_image(entry.name)) {
      fail("folder: '{}' is in a format that is not read; convert it to .png or .jpg, or remove it", path);
    }
    if (!is_image(entry.name)) continue;
    if (entry.kind != EntryKind::kFile) fail("folder: '{}' is not a file", path);
    names.push_back(entry.name);
  }
  return names;
}

struct FieldFolder {
  std::string name;
  fs::path path;  // holds train and test
};

// What the folder of the validation split is called there; empty where there is none.
std::string validation_name(const fs::path& field) {
  std::string found;
  for (const char* const name : {"val", "valid", "validation"}) {
    if (!is_folder(field / name)) continue;
    if (!found.empty())
      fail("folder: '{}' has both '{}' and '{}': keep one of them as the validation split", field.string(),
           found, name);
    found = name;
  }
  return found;
}

std::vector<FieldFolder> find_fields(const fs::path& root) {
  if (!is_folder(root)) fail("folder: '{}' is not a folder", root.string());
  std::vector<FieldFolder> fields;
  std::vector<std::string> without_train;
  for (const Entry& entry : list_entries(root)) {
    if (!entry.is_folder() || entry.is_hidden() || entry.name == "train" || entry.name == "test") continue;
    if (is_folder(root / entry.name / "train")) {
      fields.push_back({.name = entry.name, .path = root / entry.name});
    } else {
      without_train.push_back(entry.name);
    }
  }
  if (is_folder(root / "train")) {
    if (!fields.empty()) {
      fail(
          "folder: '{}' has both 'train' and '{}/train'; keep one field (train, test) or name them all "
          "(<field>/train, <field>/test)",
          root.string(), fields.front().name);
    }
    fields.push_back({.name = "image", .path = root});
  } else if (fields.empty()) {
    fail(
        "folder: '{}' has no folder 'train' ({}); want train/<class>/*.png|jpg and test/<class>/*.png|jpg "
        "(or val/, "
        "valid/), or the same under <field>/",
        root.string(), without_train.empty() ? "nor any other" : "it has " + quoted(without_train));
  } else if (!without_train.empty()) {
    fail("folder: '{}' has no folder 'train', as the other fields have; complete it, or move it elsewhere",
         (root / without_train.front()).string());
  }
  return fields;
}

void check_classes(const std::vector<std::string>& want, const fs::path& split) {
  const std::vector<std::string> have = list_classes(split);
  std::vector<std::string> missing, extra;  // both inputs are sorted
  std::set_difference(want.begin(), want.end(), have.begin(), have.end(), std::back_inserter(missing));
  std::set_difference(have.begin(), have.end(), want.begin(), want.end(), std::back_inserter(extra));
  if (!missing.empty()) {
    fail(
        "folder: class {} of train is missing in '{}'; add its folder with at least one image, or remove the "
        "class everywhere",
        quoted(missing), split.string());
  }
  if (!extra.empty()) {
    fail("folder: class {} in '{}' is not in train, which decides the classes; add it there, or remove it",
         quoted(extra), split.string());
  }
}

// Stem to file name.
std::map<std::string, std::string> by_stem(const std::vector<std::string>& names,
                                           const fs::path& class_folder) {
  std::map<std::string, std::string> map;
  for (const std::string& name : names) {
    const auto [it, is_new] = map.emplace(stem_of(name), name);
    if (!is_new) {
      fail("folder: '{}' and '{}' in '{}' have one name, and fields are paired by name; rename or remove one",
           it->second, name, class_folder.string());
    }
  }
  return map;
}

// Adds the samples of one class; the first field gives the order.
void add_class(const std::vector<FieldFolder>& fields, const std::string& split_name,
               const std::string& class_name, int64_t label, FolderSplit& split) {
  std::vector<std::string> first;  // file names in the first field
  std::map<std::string, std::string> first_by_stem;
  for (size_t f = 0; f < fields.size(); ++f) {
    const fs::path folder = fields[f].path / split_name / class_name;
    std::vector<std::string> names = list_images(folder);
    if (names.empty()) {
      fail(
          "folder: class '{}' has no image in {} ('{}'); add some (.jpg, .jpeg or .png), or remove the class "
          "everywhere",
          class_name, split_name, folder.string());
    }
    if (f == 0) {
      if (fields.size() > 1) first_by_stem = by_stem(names, folder);
      first = names;
    } else {
      const auto other = by_stem(names, folder);
      const auto fail_unpaired = [&](const std::string& stem, const FieldFolder& in,
                                     const FieldFolder& not_in) {
        fail(
            "folder: sample '{}/{}' of {} is in field '{}' and not in field '{}'; add it there, or remove it",
            class_name, stem, split_name, in.name, not_in.name);
      };
      for (const auto& [stem, name] : other) {
        if (!first_by_stem.contains(stem)) fail_unpaired(stem, fields[f], fields[0]);
      }
      names.clear();
      for (const std::string& name : first) {
        const auto found = other.find(stem_of(name));
        if (found == other.end()) fail_unpaired(stem_of(name), fields[0], fields[f]);
        names.push_back(found->second);
      }
    }
    for (const std::string& name : names) split.files[f].push_back((folder / name).string());
  }
  split.labels.insert(split.labels.end(), first.size(), label);
}

}  // namespace

FolderListing list_folder(const std::string& root) {
  const std::vector<FieldFolder> fields = find_fields(root);
  FolderListing listing;
  for (const FieldFolder& field : fields) listing.fields.push_back(field.name);
  std::string validation = validation_name(fields.front().path);
  if (!validation.empty() && !is_folder(fields.front().path / "test"))
    listing.test_name = std::exchange(validation, {});
  for (const FieldFolder& field : fields) {
    if (!is_folder(field.path / listing.test_name))
      fail("folder: '{}' has no folder '{}'; want {}/<class>/*.png|jpg with the classes of train",
           field.path.string(), listing.test_name, listing.test_name);
    if (!validation.empty() && !is_folder(field.path / validation))
      fail("folder: '{}' has no folder '{}', as the other fields have; complete it, or remove it everywhere",
           field.path.string(), validation);
  }
  const fs::path first_train = fields.front().path / "train";
  listing.class_names = list_classes(first_train);
  if (listing.class_names.empty()) {
    fail("folder: '{}' has no classes; want one folder per class, with its images", first_train.string());
  }
  for (const auto& [name, split] : {std::pair<std::string, FolderSplit*>{"train", &listing.train},
                                    {listing.test_name, &listing.test},
                                    {validation, &listing.validation}}) {
    if (name.empty()) continue;
    for (const FieldFolder& field : fields) check_classes(listing.class_names, field.path / name);
    split->files.resize(fields.size());
    for (size_t c = 0; c < listing.class_names.size(); ++c) {
      add_class(fields, name, listing.class_names[c], static_cast<int64_t>(c), *split);
    }
  }
  return listing;
}

std::vector<std::string> list_plain_folder(const std::string& root) {
  if (!is_folder(root)) return {};
  const std::vector<Entry> entries = list_entries(root);
  const auto is_unlabelled = [](const Entry& entry) {
    return !entry.is_hidden() && !entry.is_folder() && is_image(entry.name);
  };
  if (std::none_of(entries.begin(), entries.end(), is_unlabelled)) return {};
  for (const Entry& entry : entries)
    if (entry.is_folder() && !entry.is_hidden())
      fail(
          "folder: '{}' has images and the folder '{}' beside them: want images alone, or train/<class> and "
          "test/<class>",
          root, entry.name);
  std::vector<std::string> files;
  for (const std::string& name : list_images(root)) files.push_back((fs::path(root) / name).string());
  return files;
}

}  // namespace espalier::data
