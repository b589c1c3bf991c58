// What stands in a TensorBoard event file, as bytes: records and the events inside. No files here.
//
// A record is the length (u64), its masked CRC-32C (u32), the event, its masked CRC-32C (u32), all little
// endian.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/watch/tensorboard/png.h"

namespace espalier::watch {

std::string record_of(std::string_view event);

// When, in seconds since 1970, and at which step. A tag must be UTF-8: otherwise the readers refuse the whole
// file.
struct EventTime {
  double wall_seconds = 0;
  int64_t step = 0;
};

std::string version_event(double wall_seconds);  // the first record of every file
std::string session_start_event(const EventTime& time);
std::string scalar_event(const EventTime& time, std::string_view tag, double value);
std::string image_event(const EventTime& time, std::string_view tag, const Picture& picture);

// A chart of the Custom Scalars dashboard: all scalars whose tags match, on one pair of axes. (The other
// dashboards draw one chart per tag.)
struct LayoutChart {
  std::string title;
  std::string tags;  // a regular expression that fits the whole tag
};

// All charts, under one heading. The last one of a run counts.
std::string layout_event(const EventTime& time, std::string_view heading,
                         std::span<const LayoutChart> charts);

// Values counted between limits that grow by a tenth from 1e-12 to 1e20 on both sides of zero: the limits of
// TensorFlow, by which TensorBoard's charts of several runs line up. A limit belongs to the bucket above it.
// Empty buckets are left out at both ends, and their runs in between become one, up to the next value's
// bucket.
struct Histogram {
  explicit Histogram(std::span<const double> values);  // those that are not finite are left out

  double min = 0;
  double max = 0;
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> limits;   // upper ones
  std::vector<double> buckets;  // how many are below limits[i] and not below limits[i - 1]
};

std::string histogram_event(const EventTime& time, std::string_view tag, const Histogram& histogram);

}  // namespace espalier::watch
