#include "espalier/linet/metadata.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "espalier/core/error.h"
#include "espalier/core/size_product.h"
#include "espalier/core/text/metadata_numbers.h"

namespace espalier::linet {
namespace {

constexpr const char* kKind = "espalier.linet";
constexpr NumberRange kSizes{1, 1'000'000};
// Far more than any network has: a list without an end would be walked through all the same.
constexpr size_t kMostStages = 64;
constexpr size_t kMostStreams = 4096;

// Values that the convolutions of all streams have at least: the stem's 7x7, a 3x3 of each block, the head.
int64_t fewest_values(const LinetHeader& header) {
  int64_t values = saturated_product({header.num_classes, header.widths.back()});
  for (const int64_t channels : header.streams)
    values = saturated_sum(values, saturated_product({header.widths.front(), channels, 49}));
  const auto streams = static_cast<int64_t>(header.streams.size());
  for (size_t stage = 0; stage < header.stages.size(); ++stage) {
    const int64_t width = header.widths[stage];
    values = saturated_sum(values, saturated_product({header.stages[stage], streams, width, width, 9}));
  }
  return values;
}

std::string listed(const std::vector<int64_t>& numbers) {
  return fmt::format("{}", fmt::join(numbers, ","));
}

}  // namespace

Metadata metadata_of(const LinetHeader& header) {
  return {{"kind", kKind},
          {"block", header.is_bottleneck ? "bottleneck" : "basic"},
          {"streams", listed(header.streams)},
          {"stages", listed(header.stages)},
          {"widths", listed(header.widths)},
          {"classes", std::to_string(header.num_classes)}};
}

LinetHeader linet_header(const Metadata& metadata, int64_t values, const std::string& file) {
  const auto block = metadata.find("block");
  if (block == metadata.end() || (block->second != "basic" && block->second != "bottleneck"))
    fail("'{}': is no network of ours: its metadata has no 'block' that is basic or bottleneck", file);
  LinetHeader header{.streams = metadata_numbers(metadata, "streams", kSizes, file),
                     .is_bottleneck = block->second == "bottleneck",
                     .stages = metadata_numbers(metadata, "stages", kSizes, file),
                     .widths = metadata_numbers(metadata, "widths", kSizes, file),
                     .num_classes = metadata_number(metadata, "classes", kSizes, file)};
  if (header.stages.size() != header.widths.size() || header.stages.size() > kMostStages ||
      header.streams.size() > kMostStreams)
    fail(
        "'{}': metadata 'stages': want as many as 'widths', at most {}, and at most {} 'streams', got {}, {} "
        "and {}; the file is damaged",
        file, kMostStages, kMostStreams, header.stages.size(), header.widths.size(), header.streams.size());
  if (fewest_values(header) > values)
    fail(
        "'{}': its metadata is of a network of at least {} values, but its tensors hold {}; the file is "
        "damaged",
        file, fewest_values(header), values);
  return header;
}

}  // namespace espalier::linet
