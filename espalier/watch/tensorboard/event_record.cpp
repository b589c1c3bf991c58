#include "espalier/watch/tensorboard/event_record.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/files/crc32c.h"
#include "espalier/core/text/utf8.h"
#include "espalier/watch/tensorboard/protobuf.h"

namespace espalier::watch {
namespace {

// The numbers of TensorFlow's event.proto and summary.proto.
namespace event_field {
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary_field {
constexpr uint32_t kValue = 1;
}
namespace value_field {
constexpr uint32_t kTag = 1, kSimpleValue = 2, kImage = 4, kHistogram = 5, kTensor = 8, kMetadata = 9;
}
namespace image_field {
constexpr uint32_t kHeight = 1, kWidth = 2, kColourSpace = 3, kEncoded = 4;
}
namespace histogram_field {
constexpr uint32_t kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSumOfSquares = 5, kLimits = 6, kBuckets = 7;
}
namespace session_field {
constexpr uint32_t kStatus = 1;
}
constexpr int64_t kSessionStart = 1;
namespace metadata_field {
constexpr uint32_t kPluginData = 1, kPluginName = 1;
}
namespace tensor_field {
constexpr uint32_t kType = 1, kShape = 2, kText = 8;
}
constexpr int64_t kTextType = 7;  // DT_STRING
// Fields of TensorBoard's plugins/custom_scalar/layout.proto.
namespace layout_field {
constexpr uint32_t kCategory = 2, kTitle = 1, kChart = 2, kMultiline = 2, kTags = 1;
}

template <class Unsigned>
void append_little_endian(std::string& out, Unsigned value) {
  for (size_t i = 0; i < sizeof(value); ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

// Masked, since the checksum of bytes that hold a checksum is a weak one.
uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(std::as_bytes(std::span(bytes)));
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

ProtobufMessage event_at(const EventTime& time) {
  ProtobufMessage event;
  event.real(event_field::kWallTime, time.wall_seconds).integer(event_field::kStep, time.step);
  return event;
}

ProtobufMessage value_of(std::string_view tag) {
  if (!is_utf8(tag)) fail("the tag {} cannot stand in a TensorBoard event: it is not UTF-8", in_quotes(tag));
  ProtobufMessage value;
  value.bytes(value_field::kTag, tag);
  return value;
}

std::string summary_event(const EventTime& time, const ProtobufMessage& value) {
  ProtobufMessage summary;
  summary.bytes(summary_field::kValue, value.encoded());
  return event_at(time).bytes(event_field::kSummary, summary.encoded()).encoded();
}

const std::vector<double>& exponential_limits() {
  static const std::vector<double> all = [] {
    std::vector<double> above;
    for (double limit = 1e-12; limit < 1e20; limit *= 1.1) above.push_back(limit);
    above.push_back(std::numeric_limits<double>::max());
    std::vector<double> limits;
    for (size_t i = above.size(); i-- > 0;) limits.push_back(-above[i]);
    limits.push_back(0);
    limits.insert(limits.end(), above.begin(), above.end());
    return limits;
  }();
  return all;
}

}  // namespace

std::string record_of(std::string_view event) {
  std::string record;
  record.reserve(event.size() + 16);
  append_little_endian(record, uint64_t{event.size()});
  append_little_endian(record, masked_crc32c(record));
  record += event;
  append_little_endian(record, masked_crc32c(event));
  return record;
}

std::string version_event(double wall_seconds) {
  return ProtobufMessage()
      .real(event_field::kWallTime, wall_seconds)
      .bytes(event_field::kFileVersion, "brain.Event:2")
      .encoded();
}

std::string session_start_event(const EventTime& time) {
  ProtobufMessage session;
  session.integer(session_field::kStatus, kSessionStart);
  return event_at(time).bytes(event_field::kSessionLog, session.encoded()).encoded();
}

std::string scalar_event(const EventTime& time, std::string_view tag, double value) {
  return summary_event(time, value_of(tag).single(value_field::kSimpleValue, static_cast<float>(value)));
}

std::string image_event(const EventTime& time, std::string_view tag, const Picture& picture) {
  ProtobufMessage image;
  image.integer(image_field::kHeight, picture.height)
      .integer(image_field::kWidth, picture.width)
      .integer(image_field::kColourSpace, picture.channels)
      .bytes(image_field::kEncoded, png_of(picture));
  return summary_event(time, value_of(tag).bytes(value_field::kImage, image.encoded()));
}

std::string layout_event(const EventTime& time, std::string_view heading,
                         std::span<const LayoutChart> charts) {
  ProtobufMessage category;
  category.bytes(layout_field::kTitle, heading);
  for (const LayoutChart& chart : charts) {
    ProtobufMessage lines, made;
    lines.bytes(layout_field::kTags, chart.tags);
    made.bytes(layout_field::kTitle, chart.title).bytes(layout_field::kMultiline, lines.encoded());
    category.bytes(layout_field::kChart, made.encoded());
  }
  ProtobufMessage layout, tensor, plugin, metadata;
  layout.bytes(layout_field::kCategory, category.encoded());
  tensor.integer(tensor_field::kType, kTextType)
      .bytes(tensor_field::kShape, "")
      .bytes(tensor_field::kText, layout.encoded());
  plugin.bytes(metadata_field::kPluginName, "custom_scalars");
  metadata.bytes(metadata_field::kPluginData, plugin.encoded());
  return summary_event(time, value_of("custom_scalars__config__")
                                 .bytes(value_field::kTensor, tensor.encoded())
                                 .bytes(value_field::kMetadata, metadata.encoded()));
}

Histogram::Histogram(std::span<const double> values) {
  const std::vector<double>& all = exponential_limits();
  std::vector<double> counts(all.size());
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    min = count == 0 ? value : std::min(min, value);
    max = count == 0 ? value : std::max(max, value);
    ++count;
    sum += value;
    sum_of_squares += value * value;
    // The largest double there is belongs to no bucket but the last.
    const auto bucket = std::min(std::ranges::upper_bound(all, value), all.end() - 1) - all.begin();
    ++counts[static_cast<size_t>(bucket)];
  }
  const auto is_filled = [](double filled) { return filled > 0; };
  const auto first = std::ranges::find_if(counts, is_filled) - counts.begin();
  for (size_t i = static_cast<size_t>(first); i < counts.size(); ++i) {
    const bool ends_a_gap = counts[i] == 0 && i + 1 < counts.size() && counts[i + 1] > 0;
    if (counts[i] == 0 && !ends_a_gap) continue;
    limits.push_back(all[i]);
    buckets.push_back(counts[i]);
  }
}

std::string histogram_event(const EventTime& time, std::string_view tag, const Histogram& histogram) {
  ProtobufMessage message;
  message.real(histogram_field::kMin, histogram.min)
      .real(histogram_field::kMax, histogram.max)
      .real(histogram_field::kCount, histogram.count)
      .real(histogram_field::kSum, histogram.sum)
      .real(histogram_field::kSumOfSquares, histogram.sum_of_squares)
      .reals(histogram_field::kLimits, histogram.limits)
      .reals(histogram_field::kBuckets, histogram.buckets);
  return summary_event(time, value_of(tag).bytes(value_field::kHistogram, message.encoded()));
}

}  // namespace espalier::watch
