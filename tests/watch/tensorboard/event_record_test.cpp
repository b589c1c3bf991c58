#include "espalier/watch/tensorboard/event_record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::watch {
namespace {

template <size_t N>
std::string bytes_of(const char (&text)[N]) {
  return std::string(text, N - 1);
}

TEST(EventRecord, IsFramedByLengthAndMaskedChecksums) {
  // CRC-32C e3069283 turned right by 15 is 2507c60d; with a282ead8 added, c78ab0e5. The other lines are what
  // TensorBoard's own writer gives.
  EXPECT_EQ(record_of("123456789"), bytes_of("\x09\0\0\0\0\0\0\0"
                                             "\x37\xf9\x71\x39"
                                             "123456789"
                                             "\xe5\xb0\x8a\xc7"));
  EXPECT_EQ(record_of(""), bytes_of("\0\0\0\0\0\0\0\0"
                                    "\x29\x03\x98\x07"
                                    "\xd8\xea\x82\xa2"));
}

TEST(EventRecord, EventsAreProtobufByteForByte) {
  // 1.5 as a double is 3ff8000000000000; -2.5 as a float c0200000.
  EXPECT_EQ(version_event(1.5), bytes_of("\x09\0\0\0\0\0\0\xf8\x3f"  // 1: wall time
                                         "\x1a\x0d"
                                         "brain.Event:2"));  // 3: file version
  EXPECT_EQ(scalar_event({1.5, 300}, "a/b", -2.5), bytes_of("\x09\0\0\0\0\0\0\xf8\x3f"
                                                            "\x10\xac\x02"  // 2: step
                                                            "\x2a\x0c"      // 5: summary
                                                            "\x0a\x0a"      // 1: value
                                                            "\x0a\x03"
                                                            "a/b"               // 1: tag
                                                            "\x15\0\0\x20\xc0"  // 2: simple value
                                                            ));
  EXPECT_EQ(session_start_event({1.5, 7}), bytes_of("\x09\0\0\0\0\0\0\xf8\x3f"
                                                    "\x10\x07"
                                                    "\x3a\x02"     // 7: session log
                                                    "\x08\x01"));  // 1: status, START
}

TEST(EventRecord, NegativeStepsTakeTenBytesAsProtobufWantsThem) {
  const std::string event = scalar_event({0, -1}, "", 0);
  EXPECT_EQ(event.substr(9, 11), bytes_of("\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"));
}

TEST(EventRecord, RefusesATagThatIsNotUtf8) {
  EXPECT_ERROR(scalar_event({}, "bad \xff tag", 1), Error, "bad", "not UTF-8");
  EXPECT_NE(scalar_event({}, "\xe6\xb8\xa9\xe5\xba\xa6 \xf0\x9f\x8c\xb3\n\"", 1).find("\xf0\x9f\x8c\xb3"),
            std::string::npos);
}

TEST(Histogram, CountsEveryFiniteValueOnce) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> exponent(0, 8);
  std::vector<double> values;
  for (int i = 0; i < 5000; ++i) values.push_back((i % 2 == 0 ? 1 : -1) * std::exp2(exponent(random)));
  for (const double edge : {0.0, -0.0, 1e-13, -1e-13, 1e21, -1e21, std::numeric_limits<double>::max(),
                            std::numeric_limits<double>::lowest()})
    values.push_back(edge);
  const size_t num_finite = values.size();
  values.push_back(std::nan(""));
  values.push_back(std::numeric_limits<double>::infinity());

  const Histogram histogram(values);
  EXPECT_EQ(histogram.count, static_cast<double>(num_finite));
  EXPECT_EQ(std::accumulate(histogram.buckets.begin(), histogram.buckets.end(), 0.0), histogram.count);
  EXPECT_EQ(histogram.min, std::numeric_limits<double>::lowest());
  EXPECT_EQ(histogram.max, std::numeric_limits<double>::max());
  ASSERT_EQ(histogram.limits.size(), histogram.buckets.size());
  for (size_t i = 0; i < histogram.limits.size(); ++i) {
    const double below = i == 0 ? -std::numeric_limits<double>::infinity() : histogram.limits[i - 1];
    const bool is_last = i + 1 == histogram.limits.size();
    double counted = 0;
    for (size_t v = 0; v < num_finite; ++v)
      if (values[v] >= below && (values[v] < histogram.limits[i] || is_last)) ++counted;
    EXPECT_EQ(histogram.buckets[i], counted) << "bucket " << i << " below " << histogram.limits[i];
  }
}

TEST(Histogram, LimitsGrowByATenthAndGapsAreOneBucket) {
  const Histogram histogram(std::vector<double>{1.05e-12, 1.15e-12, 2e-12, 0});
  // 0 is the lower limit of the first bucket above it.
  ASSERT_EQ(histogram.buckets, (std::vector<double>{1, 1, 1, 0, 1}));
  for (size_t i = 0; i < 3; ++i)
    EXPECT_NEAR(histogram.limits[i] / (1e-12 * std::pow(1.1, static_cast<double>(i))), 1, 1e-12);
  EXPECT_LE(histogram.limits[3], 2e-12);
  EXPECT_GT(histogram.limits[4], 2e-12);
  EXPECT_NEAR(histogram.limits[4] / histogram.limits[3], 1.1, 1e-12);
  EXPECT_DOUBLE_EQ(histogram.sum, 4.2e-12);
  EXPECT_DOUBLE_EQ(histogram.sum_of_squares, 1.05e-12 * 1.05e-12 + 1.15e-12 * 1.15e-12 + 4e-24);
}

TEST(Histogram, OfNothingIsEmpty) {
  EXPECT_EQ(Histogram({}).count, 0);
  EXPECT_TRUE(Histogram(std::vector<double>{std::nan("")}).buckets.empty());
}

}  // namespace
}  // namespace espalier::watch
