// Where data comes from: "kind:place", and the options a source may need. One entry, load_source(), for all;
// sources() are the kinds.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/progress.h"
#include "espalier/core/registry.h"
#include "espalier/data/sources/host_dataset.h"

namespace espalier::data {

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
  bool operator==(const ImageSize&) const = default;
};

// What to do with an image that cannot be decoded; kSkip keeps labels aligned.
enum class OnBadSample : uint8_t { kError, kSkip };

struct SourceConfig {
  std::string data = "synthetic:shapes10";  // an address, "kind:place"
  std::optional<ImageSize> resize = {};     // for a folder's images; none: they must have one size
  int64_t channels = 0;  // that a folder's 8-bit images are brought to, 1 or 3; 0: they must agree
  OnBadSample on_bad_sample = OnBadSample::kError;
  uint64_t data_seed = 0;           // for the synthetic sources
  int64_t synthetic_train = 10000;  // samples made for the train split
  int64_t synthetic_test = 2000;    // samples made for the test split
  ImageSize synthetic_size = {32, 32};
  // Numbers of the classes that are kept, which rise; empty: all (class_choice.h).
  std::vector<int64_t> classes = {};
};

// "416x544" -> {416, 544}; fails naming the option and the text otherwise.
ImageSize parse_size(const std::string& option, const std::string& text);
// "416x544".
std::string size_text(const ImageSize& size);
// Fails naming the option where a side is below 1 or above 65535.
void check_size(const std::string& option, const ImageSize& size);

// What may stand before the colon of an address. Those that come with the library, and what a program adds.
struct SourceKind {
  std::string name;
  std::string placeholder;  // how messages write its place: "DIR"; unused where `places` are given
  std::vector<std::string_view> places = {};  // all that there are; empty: a path, made absolute
  // What of the options its data depends on; part of canonical_source(). Empty: nothing.
  std::function<std::string(const SourceConfig&)> key = {};
  std::function<HostDataset(const std::string& place, const SourceConfig&, const Progress&)> load;
};
Registry<SourceKind>& sources();
// "cifar10:DIR, ..., synthetic:shapes10 or synthetic:rgbd".
std::string source_forms();

// The kind and the canonical absolute place, with the options that matter to that kind: two spellings of one
// source give one string, two different sources never do. A key of the dataset cache.
std::string canonical_source(const SourceConfig& options);

HostDataset load_source(const SourceConfig& options, const Progress& progress);

// Images without labels: a folder:DIR with images directly in it. Nothing to learn from; see jobs/predict.h.
struct UnlabelledImages {
  std::string origin;
  HostSplit images;                // one field, "image"; its labels are all 0 and mean nothing
  std::vector<std::string> files;  // [N]
  std::vector<BadSample> skipped;
};
// None where the source has labels, or is none.
std::optional<UnlabelledImages> load_unlabelled(const SourceConfig& options, const Progress& progress);

// The sources behind it. `place` is what follows the colon.
HostDataset load_cifar(int num_classes, const std::string& place, const Progress& progress);  // 10 or 100
HostDataset load_folder(const std::string& place, const SourceConfig& options, const Progress& progress);
UnlabelledImages load_plain_folder(const std::string& place, const SourceConfig& options,
                                   const Progress& progress);
HostDataset load_safetensors(const std::string& place, const Progress& progress);
HostDataset make_shapes10(const SourceConfig& options, const Progress& progress);
HostDataset make_rgbd(const SourceConfig& options, const Progress& progress);

// Writes the form that load_safetensors() maps: atomic, with class names and statistics in the metadata.
void write_safetensors(const HostDataset& dataset, const std::string& file, const Progress& progress);

}  // namespace espalier::data
