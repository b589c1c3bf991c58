#include "espalier/data/sources/source.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/text/nearest.h"
#include "espalier/core/text/utf8.h"
#include "espalier/data/sources/class_choice.h"
#include "espalier/data/sources/images/folder_listing.h"

namespace espalier::data {

namespace {

struct SourceName {
  std::string kind;
  std::string place;  // absolute and canonical where it is a path
};

// "DIR", or the first of the places there are.
std::string_view place_of(const SourceKind& kind) {
  return kind.places.empty() ? std::string_view(kind.placeholder) : kind.places.front();
}

bool is_kind(std::string_view name) {
  return std::ranges::count(sources().names(), name) > 0;
}

[[noreturn]] void fail_without_kind(const std::string& text) {
  if (text.empty()) fail_usage("--data is empty; expected {}", source_forms());
  for (const std::string_view name : sources().names())
    if (std::ranges::count(sources().at(name).places, text) > 0)
      fail_usage("--data {}: the kind is missing; write {}:{}", text, name, text);
  if (is_kind(text))
    fail_usage("--data {}: the place is missing; write {}:{}", text, text, place_of(sources().at(text)));
  std::error_code ignored;
  if (text.find('/') == std::string::npos && !std::filesystem::exists(text, ignored)) {
    fail_usage("--data {}: the kind is missing; expected {}", text, source_forms());
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
               source_forms());
  }
  const size_t colon = text.find(':');
  if (colon == std::string::npos) fail_without_kind(text);
  SourceName name{.kind = text.substr(0, colon), .place = text.substr(colon + 1)};
  if (name.kind.find('/') != std::string::npos) fail_without_kind(text);  // a path with a colon in it
  if (!is_kind(name.kind)) {
    fail_usage("--data {}: unknown kind '{}', did you mean '{}'? expected {}", on_one_line(text),
               on_one_line(name.kind), nearest_name(name.kind, sources().names()), source_forms());
  }
  if (name.place.empty()) fail_without_kind(name.kind);
  const std::vector<std::string_view>& places = sources().at(name.kind).places;
  if (places.empty()) {
    name.place = canonical_path(name.kind, name.place);
  } else if (std::ranges::count(places, name.place) == 0) {
    fail_usage("--data {}: unknown {} data '{}', did you mean '{}'? expected {}", on_one_line(text),
               name.kind, on_one_line(name.place), nearest_name(name.place, places),
               fmt::join(places, " or "));
  }
  return name;
}

// A path may hold anything that separates options too; it stays unambiguous because a kind that has options
// always writes them, after the last '?'.
std::string canonical_string(const SourceName& name, const SourceConfig& options) {
  const SourceKind& kind = sources().at(name.kind);
  // Not where someone else's source may use them.
  const bool is_made = name.kind == "synthetic";
  if (is_made || name.kind == "safetensors" || name.kind.starts_with("cifar")) {
    const char* const remedy = is_made ? "give --synthetic-size HxW for synthetic images" : "leave it out";
    if (options.resize)
      fail_usage("--resize {}: only the images of a folder (folder:DIR) are resized, got --data {}:{}; {}",
                 size_text(*options.resize), name.kind, name.place, remedy);
    if (options.channels != 0)
      fail_usage(
          "--channels {}: only the images of a folder (folder:DIR) are converted, got --data {}:{}; leave it "
          "out",
          options.channels, name.kind, name.place);
  }
  // Before the colon, where no kind has brackets: behind it they could be part of a path.
  std::string text = options.classes.empty()
                         ? fmt::format("{}:{}", name.kind, name.place)
                         : fmt::format("{}[{}]:{}", name.kind, classes_text(options.classes), name.place);
  if (kind.key) text += fmt::format("?{}", kind.key(options));
  return text;
}

std::string folder_key(const SourceConfig& options) {
  std::string key =
      fmt::format("on-bad-sample={}", options.on_bad_sample == OnBadSample::kSkip ? "skip" : "error");
  if (options.resize) check_size("--resize", *options.resize);
  if (options.resize) key += "&resize=" + size_text(*options.resize);
  if (options.channels != 0) key += fmt::format("&channels={}", options.channels);
  return key;
}

std::string synthetic_key(const SourceConfig& options) {
  check_size("--synthetic-size", options.synthetic_size);
  return fmt::format("seed={}&train={}&test={}&size={}", options.data_seed, options.synthetic_train,
                     options.synthetic_test, size_text(options.synthetic_size));
}

constexpr int64_t kMaxSide = 65535;

bool is_allowed(const ImageSize& size) {
  return size.height >= 1 && size.height <= kMaxSide && size.width >= 1 && size.width <= kMaxSide;
}

}  // namespace

ImageSize parse_size(const std::string& option, const std::string& text) {
  ImageSize size;
  const char* const end = text.data() + text.size();
  const auto height = std::from_chars(text.data(), end, size.height);
  if (height.ec == std::errc() && height.ptr != end && *height.ptr == 'x') {
    const auto width = std::from_chars(height.ptr + 1, end, size.width);
    if (width.ec == std::errc() && width.ptr == end && is_allowed(size)) return size;
  }
  fail_usage("{} {}: expected HxW, such as 32x32, with both sides from 1 to {}", option,
             text.empty() ? "''" : on_one_line(text), kMaxSide);
}

std::string size_text(const ImageSize& size) {
  return fmt::format("{}x{}", size.height, size.width);
}

void check_size(const std::string& option, const ImageSize& size) {
  if (!is_allowed(size))
    fail_usage("{} {}: expected HxW, such as 32x32, with both sides from 1 to {}", option, size_text(size),
               kMaxSide);
}

Registry<SourceKind>& sources() {
  static Registry<SourceKind> kinds(
      "--data",
      {{.name = "cifar10",
        .placeholder = "DIR",
        .load = [](const std::string& place, const SourceConfig&,
                   const Progress& progress) { return load_cifar(10, place, progress); }},
       {.name = "cifar100",
        .placeholder = "DIR",
        .load = [](const std::string& place, const SourceConfig&,
                   const Progress& progress) { return load_cifar(100, place, progress); }},
       {.name = "folder", .placeholder = "DIR", .key = folder_key, .load = load_folder},
       {.name = "safetensors",
        .placeholder = "FILE",
        .load = [](const std::string& place, const SourceConfig&,
                   const Progress& progress) { return load_safetensors(place, progress); }},
       {.name = "synthetic",
        .places = {"shapes10", "rgbd"},
        .key = synthetic_key,
        .load = [](const std::string& place, const SourceConfig& options, const Progress& progress) {
          return place == "rgbd" ? make_rgbd(options, progress) : make_shapes10(options, progress);
        }}});
  return kinds;
}

std::string source_forms() {
  std::vector<std::string> forms;
  for (const std::string_view name : sources().names()) {
    const SourceKind& kind = sources().at(name);
    if (kind.places.empty()) forms.push_back(kind.name + ":" + kind.placeholder);
    for (const std::string_view place : kind.places) forms.push_back(fmt::format("{}:{}", name, place));
  }
  const std::string last = forms.back();
  forms.pop_back();
  return forms.empty() ? last : fmt::format("{} or {}", fmt::join(forms, ", "), last);
}

std::string canonical_source(const SourceConfig& options) {
  return canonical_string(split_source(options.data), options);
}

HostDataset load_source(const SourceConfig& options, const Progress& progress) {
  const SourceName name = split_source(options.data);
  const std::string origin = canonical_string(name, options);  // also refuses options that cannot be meant
  HostDataset dataset = sources().at(name.kind).load(name.place, options, progress);
  dataset.origin = origin;
  check_dataset(dataset);
  if (options.classes.empty()) return dataset;
  dataset = with_classes(dataset, options.classes);
  check_dataset(dataset);
  return dataset;
}

std::optional<UnlabelledImages> load_unlabelled(const SourceConfig& options, const Progress& progress) {
  const SourceName name = split_source(options.data);
  canonical_string(name, options);  // refuses options that cannot be meant
  if (name.kind != "folder" || list_plain_folder(name.place).empty()) return std::nullopt;
  if (!options.classes.empty())
    fail_usage("--classes {}: the images in '{}' have no labels to choose by; leave it out",
               classes_text(options.classes), name.place);
  return load_plain_folder(name.place, options, progress);
}

}  // namespace espalier::data
