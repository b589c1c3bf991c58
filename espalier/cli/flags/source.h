// Flags of the place that data comes from. Without torch: they are fuzzed.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/core/options.h"
#include "espalier/data/sources/source.h"

namespace espalier::cli {

// HxW; where it is optional, nothing means none.
TextMember size_member(data::ImageSize& member, std::string flag);
TextMember size_member(std::optional<data::ImageSize>& member, std::string flag);
// "0-4"; nothing means all.
TextMember classes_member(std::vector<int64_t>& member, std::string flag);
// "where the data is: cifar10:DIR, ...", from the registry of sources.
std::string_view data_help();

template <class Visitor>
void visit_source(Visitor&& visitor, data::SourceConfig& source) {
  auto v = in_group(visitor, "Data");
  v({.name = "data", .help = data_help()}, source.data);
  v({.name = "classes",
     .help =
         "numbers of the classes to keep, such as 0-4 or 0,3,7-9: others are left out, and labels count from "
         "0; without this flag all",
     .placeholder = "LIST"},
    classes_member(source.classes, "--classes"));
  v({.name = "resize",
     .help = "HxW: resize the images of a folder; without this flag they must all have the same size",
     .placeholder = "HxW"},
    size_member(source.resize, "--resize"));
  v({.name = "channels",
     .help = "1 or 3: make the 8-bit images of a folder grey or colour; 0: they must all be alike",
     .low = 0,
     .high = 3},
    source.channels);
  v({.name = "on-bad-sample",
     .help = "what to do with an image that cannot be decoded; skip lists them and keeps labels aligned"},
    one_of(source.on_bad_sample, {{"error", data::OnBadSample::kError}, {"skip", data::OnBadSample::kSkip}}));
  v({.name = "data-seed", .help = "seed of a synthetic source"}, source.data_seed);
  v({.name = "synthetic-train",
     .help = "training samples that a synthetic source makes",
     .low = 1,
     .high = 1e8},
    source.synthetic_train);
  v({.name = "synthetic-test", .help = "test samples that a synthetic source makes", .low = 1, .high = 1e8},
    source.synthetic_test);
  v({.name = "synthetic-size", .help = "HxW: size of a synthetic source's images", .placeholder = "HxW"},
    size_member(source.synthetic_size, "--synthetic-size"));
}

}  // namespace espalier::cli
