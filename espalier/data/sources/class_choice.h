// A part of a dataset's classes: which samples are kept, and the labels that they get.
//
// Kept true: labels of what is kept are 0 to k - 1, in the order of the numbers that classes had before;
// names go with them; samples keep their order; means and deviations are those of what is kept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/data/sources/host_dataset.h"

namespace espalier::data {

// "0,3,7-9" -> {0, 3, 7, 8, 9}; "" -> {}, which stands for all. Fails as usage, naming the option and the
// text, for what is no such list, names a class twice, or only one.
std::vector<int64_t> parse_classes(std::string_view option, std::string_view text);
// The shortest text of it: numbers rise, three and more in a row are a range.
std::string classes_text(const std::vector<int64_t>& classes);

// The samples of these classes alone. Fails as usage where the dataset has no class of such a number, or a
// train or test split is left without any sample.
HostDataset with_classes(const HostDataset& dataset, const std::vector<int64_t>& classes);

}  // namespace espalier::data
