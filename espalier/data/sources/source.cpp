#include "espalier/data/sources/source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/nearest.h"
#include "espalier/core/utf8.h"

namespace espalier::data {

namespace {

const std::vector<std::string_view> kKinds = {"cifar10", "cifar100", "folder", "safetensors", "synthetic"};
const std::vector<std::string_view> kSynthetic = {"shapes10", "rgbd"};
constexpr std::string_view kForms =
    "cifar10:DIR, cifar100:DIR, folder:DIR, safetensors:FILE, synthetic:shapes10 or synthetic:rgbd";

struct SourceName {
  std::string kind;
  std::string place;  // absolute and canonical where it is a path
};

[[noreturn]] void fail_without_kind(const std::string& text) {
  if (text.empty()) fail_usage("--data is empty; expected {}", kForms);
  if (text == "shapes10" || text == "rgbd") {
    fail_usage("--data {}: the kind is missing; write synthetic:{}", text, text);
  }
  if (std::find(kKinds.begin(), kKinds.end(), text) != kKinds.end()) {
    const char* place = text == "synthetic" ? "shapes10" : text == "safetensors" ? "FILE" : "DIR";
    fail_usage("--data {}: the place is missing; write {}:{}", text, text, place);
  }
  std::error_code ignored;
  if (text.find('/') == std::string::npos && !std::filesystem::exists(text, ignored)) {
    fail_usage("--data {}: the kind is missing; expected {}", text, kForms);
  }
  if (text.ends_with(".safetensors")) {
    fail_usage("--data {}: the kind is missing; write safetensors:{}", text, text);
  }
  fail_usage("--data {}: a path needs the kind of data before it; write cifar10:{}, cifar100:{} or folder:{}",
             text, text, text, text);
}

std::string canonical_path(const std::string& kind, const std::string& place) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path path = fs::absolute(place, error);
  if (!error) path = fs::weakly_canonical(path, error);
  if (error) fail("{}:{}: the path cannot be resolved: {}", kind, place, error.message());
  if (!path.has_filename() && path.has_relative_path()) path = path.parent_path();  // "new/" is "new"
  if (place.starts_with("~/") && !fs::exists(path, error)) {
    fail("{}:{}: no such place; the shell leaves ~ alone after a colon, write {}:$HOME{}", kind, place, kind,
         place.substr(1));
  }
  return path.string();
}

SourceName split_source(const std::string& text) {
  // Not even a path: it would break the lines of whatever shows it.
  if (std::any_of(text.begin(), text.end(), [](char c) { return (c >= 0 && c < 0x20) || c == 0x7f; })) {
    fail_usage("--data {}: has a zero byte or another control character; expected {}", on_one_line(text),
               kForms);
  }
  const size_t colon = text.find(':');
  if (colon == std::string::npos) fail_without_kind(text);
  SourceName name{.kind = text.substr(0, colon), .place = text.substr(colon + 1)};
  if (name.kind.find('/') != std::string::npos) fail_without_kind(text);  // a path with a colon in it
  if (std::find(kKinds.begin(), kKinds.end(), name.kind) == kKinds.end()) {
    fail_usage("--data {}: unknown kind '{}', did you mean '{}'? expected {}", on_one_line(text),
               on_one_line(name.kind), nearest_name(name.kind, kKinds), kForms);
  }
  if (name.place.empty()) fail_without_kind(name.kind);
  if (name.kind == "synthetic") {
    if (std::find(kSynthetic.begin(), kSynthetic.end(), name.place) == kSynthetic.end()) {
      fail_usage("--data {}: unknown synthetic data '{}', did you mean '{}'? expected shapes10 or rgbd",
                 on_one_line(text), on_one_line(name.place), nearest_name(name.place, kSynthetic));
    }
  } else {
    name.place = canonical_path(name.kind, name.place);
  }
  return name;
}

// A path may hold anything that separates options too; it stays unambiguous because a kind that has options
// always writes them, after the last '?'.
std::string canonical_string(const SourceName& name, const SourceOptions& options) {
  std::string text = name.kind + ":" + name.place;
  if (name.kind == "synthetic") {
    const ImageSize size = parse_size("--synthetic-size", options.synthetic_size);
    text += fmt::format("?seed={}&train={}&test={}&size={}x{}", options.data_seed, options.synthetic_train,
                        options.synthetic_test, size.height, size.width);
  } else if (name.kind == "folder") {
    if (options.on_bad_sample != "error" && options.on_bad_sample != "skip") {
      fail_usage("--on-bad-sample {}: expected error or skip", options.on_bad_sample);
    }
    text += "?on-bad-sample=" + options.on_bad_sample;
    if (!options.resize.empty()) {
      const ImageSize size = parse_size("--resize", options.resize);
      text += fmt::format("&resize={}x{}", size.height, size.width);
    }
  }
  return text;
}

}  // namespace

ImageSize parse_size(const std::string& option, const std::string& text) {
  constexpr int64_t kMaxSide = 65535;
  ImageSize size;
  const char* const end = text.data() + text.size();
  const auto height = std::from_chars(text.data(), end, size.height);
  if (height.ec == std::errc() && height.ptr != end && *height.ptr == 'x') {
    const auto width = std::from_chars(height.ptr + 1, end, size.width);
    const bool fits =
        size.height >= 1 && size.height <= kMaxSide && size.width >= 1 && size.width <= kMaxSide;
    if (width.ec == std::errc() && width.ptr == end && fits) return size;
  }
  fail_usage("{} {}: expected HxW, such as 32x32, with both sides from 1 to {}", option,
             text.empty() ? "''" : on_one_line(text), kMaxSide);
}

std::string canonical_source(const SourceOptions& options) {
  return canonical_string(split_source(options.data), options);
}

HostDataset load_source(const SourceOptions& options, const Progress& progress) {
  const SourceName name = split_source(options.data);
  const std::string origin = canonical_string(name, options);  // also refuses options that cannot be meant
  HostDataset dataset;
  if (name.kind == "cifar10") {
    dataset = load_cifar(10, name.place, progress);
  } else if (name.kind == "cifar100") {
    dataset = load_cifar(100, name.place, progress);
  } else if (name.kind == "folder") {
    dataset = load_folder(name.place, options, progress);
  } else if (name.kind == "safetensors") {
    dataset = load_safetensors(name.place, progress);
  } else if (name.place == "shapes10") {
    dataset = make_shapes10(options, progress);
  } else {
    dataset = make_rgbd(options, progress);
  }
  dataset.origin = origin;
  check_dataset(dataset);
  return dataset;
}

}  // namespace espalier::data
