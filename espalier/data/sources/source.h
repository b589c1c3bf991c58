// Where data comes from: "kind:place", and the options a source may need. One entry, load_source(), for all.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/data/sources/host_dataset.h"

namespace espalier::data {

struct SourceOptions {
  std::string data = "synthetic:shapes10";
  std::string resize;                   // "HxW"; empty: images must have one size
  std::string on_bad_sample = "error";  // error | skip
  uint64_t data_seed = 0;               // of the synthetic sources
  int64_t synthetic_train = 10000;      // samples made for the train split
  int64_t synthetic_test = 2000;        // samples made for the test split
  std::string synthetic_size = "32x32";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "data",
       .help = "where the data is: cifar10:DIR, cifar100:DIR, folder:DIR, safetensors:FILE, "
               "synthetic:shapes10 or synthetic:rgbd"},
      data);
    v({.name = "resize", .help = "HxW: resize the images of a folder; without it they must have one size"},
      resize);
    v({.name = "on-bad-sample",
       .help = "what to do with an image that cannot be decoded; skip lists them and keeps labels aligned",
       .choices = {"error", "skip"}},
      on_bad_sample);
    v({.name = "data-seed", .help = "seed of a synthetic source"}, data_seed);
    v({.name = "synthetic-train", .help = "train samples a synthetic source makes", .low = 1, .high = 1e8},
      synthetic_train);
    v({.name = "synthetic-test", .help = "test samples a synthetic source makes", .low = 1, .high = 1e8},
      synthetic_test);
    v({.name = "synthetic-size", .help = "HxW of a synthetic source's images"}, synthetic_size);
  }
};

struct ImageSize {
  int64_t height = 0;
  int64_t width = 0;
};

// "416x544" -> {416, 544}; fails naming the option and the text otherwise.
ImageSize parse_size(const std::string& option, const std::string& text);

// The kind and the canonical absolute place, with the options that matter to that kind: two spellings of one
// source give one string, two different sources never do. A key of the dataset cache.
std::string canonical_source(const SourceOptions& options);

HostDataset load_source(const SourceOptions& options, const Progress& progress);

// The sources behind it. `place` is what follows the colon.
HostDataset load_cifar(int num_classes, const std::string& place, const Progress& progress);  // 10 or 100
HostDataset load_folder(const std::string& place, const SourceOptions& options, const Progress& progress);
HostDataset load_safetensors(const std::string& place, const Progress& progress);
HostDataset make_shapes10(const SourceOptions& options, const Progress& progress);
HostDataset make_rgbd(const SourceOptions& options, const Progress& progress);

// Writes the form that load_safetensors() maps: atomic, with class names and statistics in the metadata.
void write_safetensors(const HostDataset& dataset, const std::string& file, const Progress& progress);

}  // namespace espalier::data
