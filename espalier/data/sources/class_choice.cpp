#include "espalier/data/sources/class_choice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <optional>
#include <tuple>

#include "espalier/core/error.h"
#include "espalier/core/text/list.h"
#include "espalier/core/text/utf8.h"

namespace espalier::data {
namespace {

// Nobody has more classes, and no text makes a longer list.
constexpr int64_t kMostClasses = 65536;

[[noreturn]] void refuse(std::string_view option, std::string_view text, const std::string& why) {
  fail_usage("{} {}: {}; want numbers of classes from 0 on, such as 0-4 or 0,3,7-9", option,
             text.empty() ? "''" : on_one_line(text), why);
}

std::optional<int64_t> number_in(std::string_view text) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 0 || number >= kMostClasses) return std::nullopt;
  return number;
}

// The label of every class, -1 where it is not kept.
std::vector<int64_t> new_labels(const HostDataset& dataset, const std::vector<int64_t>& classes) {
  std::vector<int64_t> labels(dataset.class_names.size(), -1);
  for (size_t i = 0; i < classes.size(); ++i)
    labels[static_cast<size_t>(classes[i])] = static_cast<int64_t>(i);
  return labels;
}

HostSplit kept_of(const HostSplit& split, const std::vector<int64_t>& labels) {
  HostSplit kept;
  std::vector<int64_t> samples;  // that are kept
  for (int64_t i = 0; i < split.num_samples(); ++i) {
    const int64_t label = labels[static_cast<size_t>(split.labels[static_cast<size_t>(i)])];
    if (label < 0) continue;
    samples.push_back(i);
    kept.labels.push_back(label);
  }
  for (const HostField& field : split.fields) {
    NewField made = allocate_field(field.spec, kept.num_samples());
    const int64_t bytes = field.spec.bytes_per_sample();
    for (size_t i = 0; i < samples.size(); ++i)
      std::memcpy(made.values.get() + static_cast<int64_t>(i) * bytes,
                  field.values.get() + samples[i] * bytes, static_cast<size_t>(bytes));
    kept.fields.push_back(std::move(made.field));
  }
  return kept;
}

}  // namespace

std::vector<int64_t> parse_classes(std::string_view option, std::string_view text) {
  std::vector<int64_t> classes;
  if (text.empty()) return classes;
  for (const std::string& part : split_list(text)) {
    const size_t dash = part.find('-');
    const auto first = number_in(std::string_view(part).substr(0, dash));
    const auto last = dash == std::string::npos ? first : number_in(std::string_view(part).substr(dash + 1));
    if (!first || !last)
      refuse(option, text,
             fmt::format("'{}' is neither a number below {} nor a range of them", on_one_line(part),
                         kMostClasses));
    if (*last < *first) refuse(option, text, fmt::format("{} runs backwards", on_one_line(part)));
    for (int64_t number = *first; number <= *last; ++number) classes.push_back(number);
    if (std::ssize(classes) > kMostClasses) refuse(option, text, "names a class twice");
  }
  std::ranges::sort(classes);
  if (const auto twice = std::ranges::adjacent_find(classes); twice != classes.end())
    refuse(option, text, fmt::format("names class {} twice", *twice));
  if (classes.size() == 1) refuse(option, text, "leaves a single class: there is nothing to learn");
  return classes;
}

std::string classes_text(const std::vector<int64_t>& classes) {
  std::string text;
  for (size_t i = 0; i < classes.size();) {
    size_t last = i;
    while (last + 1 < classes.size() && classes[last + 1] == classes[last] + 1) last += 1;
    if (last == i + 1) last = i;  // two in a row are two numbers
    text += fmt::format("{}{}", text.empty() ? "" : ",", classes[i]);
    if (last > i) text += fmt::format("-{}", classes[last]);
    i = last + 1;
  }
  return text;
}

HostDataset with_classes(const HostDataset& dataset, const std::vector<int64_t>& classes) {
  if (classes.empty()) return dataset;
  if (classes.front() < 0 ||
      std::ranges::adjacent_find(classes, std::ranges::greater_equal{}) != classes.end())
    fail_usage("--classes: want numbers from 0 on that rise, got {}", fmt::join(classes, ","));
  if (classes.back() >= dataset.num_classes())
    fail_usage("--classes {}: this data has {} classes, 0 to {}: {} is none of them", classes_text(classes),
               dataset.num_classes(), dataset.num_classes() - 1, classes.back());
  const std::vector<int64_t> labels = new_labels(dataset, classes);
  HostDataset kept{.origin = dataset.origin,
                   .class_names = {},
                   .train = kept_of(dataset.train, labels),
                   .test = kept_of(dataset.test, labels),
                   .validation = kept_of(dataset.validation, labels),
                   .statistics = {},
                   .skipped = dataset.skipped};
  for (const int64_t number : classes)
    kept.class_names.push_back(dataset.class_names[static_cast<size_t>(number)]);
  for (const auto& [name, before, after] :
       {std::tuple{"train", &dataset.train, &kept.train}, std::tuple{"test", &dataset.test, &kept.test},
        std::tuple{"validation", &dataset.validation, &kept.validation}})
    if (before->num_samples() > 0 && after->num_samples() == 0)
      fail_usage("--classes {}: no sample of the {} split is of these classes; choose others",
                 classes_text(classes), name);
  for (const HostField& field : kept.train.fields)
    kept.statistics.push_back(compute_statistics(field, kept.train.num_samples()));
  return kept;
}

}  // namespace espalier::data
