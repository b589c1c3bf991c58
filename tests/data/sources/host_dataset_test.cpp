#include "espalier/data/sources/host_dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "espalier/core/error.h"
#include "espalier/data/sources/source.h"
#include "tests/data/sources/messages.h"

namespace espalier::data {

namespace {

using namespace testing;

HostField random_field(const FieldSpec& spec, int64_t num_samples, unsigned seed) {
  const NewField made = allocate_field(spec, num_samples);
  std::mt19937 random(seed);
  for (int64_t i = 0; i < made.field.size_bytes; ++i) made.values.get()[i] = static_cast<std::byte>(random());
  return made.field;
}

// The textbook's two passes, in long double.
template <class Value>
FieldStatistics two_passes(const HostField& field, int64_t num_samples) {
  const auto channels = static_cast<size_t>(field.spec.channels);
  const int64_t count = num_samples * field.spec.height * field.spec.width;
  const auto value = [&](int64_t i) {
    Value v;
    std::memcpy(&v, field.values.get() + i * static_cast<int64_t>(sizeof(Value)), sizeof(Value));
    return static_cast<long double>(v) / std::numeric_limits<Value>::max();
  };
  FieldStatistics result;
  for (size_t c = 0; c < channels; ++c) {
    long double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; ++i) sum += value(i * field.spec.channels + static_cast<int64_t>(c));
    const long double mean = sum / static_cast<long double>(count);
    for (int64_t i = 0; i < count; ++i) {
      const long double distance = value(i * field.spec.channels + static_cast<int64_t>(c)) - mean;
      squares += distance * distance;
    }
    result.mean.push_back(static_cast<double>(mean));
    result.stddev.push_back(static_cast<double>(std::sqrt(squares / static_cast<long double>(count))));
  }
  return result;
}

void expect_equal(const FieldStatistics& a, const FieldStatistics& b) {
  ASSERT_EQ(a.mean.size(), b.mean.size());
  for (size_t c = 0; c < a.mean.size(); ++c) {
    EXPECT_NEAR(a.mean[c], b.mean[c], 1e-12);
    EXPECT_NEAR(a.stddev[c], b.stddev[c], 1e-12);
  }
}

HostDataset small_dataset() {
  const FieldSpec rgb{.name = "rgb", .type = SampleType::kU8, .height = 2, .width = 3, .channels = 3};
  const FieldSpec depth{.name = "depth", .type = SampleType::kU16, .height = 2, .width = 3, .channels = 1};
  HostDataset dataset;
  dataset.class_names = {"cat", "dog"};
  for (HostSplit* split : {&dataset.train, &dataset.test}) {
    split->labels = {0, 1, 1};
    split->fields = {random_field(rgb, 3, 1), random_field(depth, 3, 2)};
  }
  for (const HostField& field : dataset.train.fields)
    dataset.statistics.push_back(compute_statistics(field, 3));
  return dataset;
}

// The message that check_dataset() fails with after `change`.
template <class Change>
std::string error_after(Change&& change) {
  HostDataset dataset = small_dataset();
  change(dataset);
  const std::string error = error_of([&] { check_dataset(dataset); });
  return error.empty() ? "no error" : error;
}

}  // namespace

TEST(HostDataset, AllocatesAlignedBuffersOfEverySize) {
  for (const int64_t size : {0, 1, 255, 256, 257, 4 << 20, (9 << 20) + 1}) {
    const std::shared_ptr<std::byte> buffer = allocate_host(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.get()) % 256, 0u);
    if (size > 0) std::memset(buffer.get(), 1, static_cast<size_t>(size));
  }
  EXPECT_THROW(allocate_host(-1), Error);
  EXPECT_THROW(allocate_host(std::numeric_limits<int64_t>::max()), Error);
}

TEST(HostDataset, StatisticsAgreeWithTwoPassesForEveryShape) {
  for (const int64_t channels : {1, 2, 3, 4, 7}) {
    for (const int64_t side : {1, 5, 16, 33}) {
      for (const int64_t num_samples : {1, 2, 31}) {
        SCOPED_TRACE(::testing::Message()
                     << channels << " channels, side " << side << ", samples " << num_samples);
        FieldSpec spec{
            .name = "x", .type = SampleType::kU8, .height = side, .width = side + 1, .channels = channels};
        const HostField bytes = random_field(spec, num_samples, 5);
        expect_equal(compute_statistics(bytes, num_samples), two_passes<uint8_t>(bytes, num_samples));
        spec.type = SampleType::kU16;
        const HostField words = random_field(spec, num_samples, 6);
        expect_equal(compute_statistics(words, num_samples), two_passes<uint16_t>(words, num_samples));
      }
    }
  }
}

TEST(HostDataset, StatisticsOfTheLargestValuesDoNotOverflow) {
  // 2304 x 2304 pixels in one sample: more rows of 16 than fit a uint32 sum of squares without a flush.
  for (const SampleType type : {SampleType::kU8, SampleType::kU16}) {
    const FieldSpec spec{.name = "x", .type = type, .height = 2304, .width = 2304, .channels = 1};
    const NewField made = allocate_field(spec, 1);
    std::memset(made.values.get(), 0xff, static_cast<size_t>(spec.bytes_per_sample()));
    const FieldStatistics statistics = compute_statistics(made.field, 1);
    EXPECT_EQ(statistics.mean[0], 1.0);
    EXPECT_EQ(statistics.stddev[0], 0.0);
  }
}

TEST(HostDataset, StatisticsOfNothingAreZero) {
  const FieldSpec spec{.name = "x", .type = SampleType::kU8, .height = 1, .width = 1, .channels = 2};
  EXPECT_EQ(compute_statistics({.spec = spec, .values = nullptr}, 0).mean, (std::vector<double>{0, 0}));
}

TEST(HostDataset, AcceptsWhatHoldsItsInvariants) {
  EXPECT_EQ(error_after([](HostDataset&) {}), "no error");
  EXPECT_EQ(error_after([](HostDataset& d) {
              d.test.labels.clear();
              for (HostField& field : d.test.fields) field = {.spec = field.spec};
            }),
            "no error");
}

TEST(HostDataset, NamesWhatDoesNotHold) {
  expect_contains(error_after([](HostDataset& d) { d.train.labels[1] = 2; }),
                  "label 2 of train sample 1 is out of range; expected 0 to 1");
  expect_contains(error_after([](HostDataset& d) { d.test.labels[2] = -1; }), "label -1 of test sample 2");
  expect_contains(error_after([](HostDataset& d) { d.class_names.clear(); }), "no class names");
  expect_contains(error_after([](HostDataset& d) { d.class_names[1] = "caf\xe9\n"; }),
                  R"(the class "caf\xe9\x0a" is not UTF-8: rename it)");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[0].spec.name = "\xff"; }),
                  R"(the field "\xff" is not UTF-8)");
  expect_contains(error_after([](HostDataset& d) { d.origin = "folder:/caf\xe9"; }), "not UTF-8");
  expect_contains(error_after([](HostDataset& d) { d.train.fields.clear(); }), "train split has no field");
  expect_contains(error_after([](HostDataset& d) { d.test.fields.pop_back(); }),
                  "train has 2 fields and test has 1");
  expect_contains(error_after([](HostDataset& d) { d.test.fields[1].spec.width = 4; }),
                  "'depth' uint16 2x3x1 in train and 'depth' uint16 2x4x1 in test");
  expect_contains(error_after([](HostDataset& d) { std::swap(d.test.fields[0], d.test.fields[1]); }),
                  "field 0 is 'rgb'");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[0].values = nullptr; }),
                  "field 'rgb' of the train split has no values");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[0].spec.name = "depth"; }),
                  "two fields named 'depth'");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[0].spec.name = ""; }), "no name");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[0].spec.channels = 0; }), "2x3x0");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[0].spec.height = int64_t{1} << 62; }),
                  "fit in memory");
  expect_contains(error_after([](HostDataset& d) { d.statistics.pop_back(); }),
                  "statistics for 1 fields, expected 2");
  expect_contains(error_after([](HostDataset& d) { d.statistics[0].mean.pop_back(); }),
                  "2 means and 3 standard");
}

// Nine labels for four images: the memory behind them would be read.
TEST(HostDataset, RefusesAFieldOfAnotherLengthThanItsLabels) {
  expect_contains(error_after([](HostDataset& d) { d.train.labels = {0, 1, 1, 0, 1, 1, 0, 1, 0}; }),
                  "field 'rgb' of the train split holds 54 bytes, expected 162, 9 samples of 18 bytes");
  expect_contains(error_after([](HostDataset& d) { d.test.labels = {0, 1}; }),
                  "field 'rgb' of the test split holds 54 bytes, expected 36");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[1].size_bytes -= 1; }),
                  "field 'depth' of the train split holds 35 bytes, expected 36");
  expect_contains(error_after([](HostDataset& d) { d.train.fields[1].size_bytes = 0; }), "holds 0 bytes");
  const HostField four = small_dataset().train.fields[0];
  expect_contains(error_of([&] { compute_statistics(four, 9); }), "holds 54 bytes, expected 162");
  expect_contains(error_of([&] { compute_statistics(four, 1); }), "holds 54 bytes, expected 18");
  expect_contains(error_of([&] { compute_statistics(four, -1); }), "-1 samples");
  HostDataset long_labels = small_dataset();
  long_labels.train.labels.resize(9, 0);
  expect_contains(error_of([&] { write_safetensors(long_labels, "/nonexistent/x", {}); }), "expected 162");
}

TEST(HostDataset, RefusesSizesWhoseProductOverflows) {
  const FieldSpec wide{.name = "w", .type = SampleType::kU16, .height = 65535, .width = 65535, .channels = 3};
  EXPECT_EQ(wide.size_bytes(2), 2 * wide.bytes_per_sample());
  for (const int64_t samples : {int64_t{1} << 30, int64_t{1} << 62, int64_t{-1}}) {
    expect_contains(error_of([&] { allocate_field(wide, samples); }),
                    "field 'w': " + std::to_string(samples) + " samples of 65535x65535x3 uint16");
  }
}

TEST(HostDataset, TypesHaveNamesAndSizes) {
  EXPECT_EQ(bytes_of(SampleType::kU8), 1);
  EXPECT_EQ(bytes_of(SampleType::kU16), 2);
  EXPECT_STREQ(name_of(SampleType::kU8), "uint8");
  EXPECT_STREQ(name_of(SampleType::kU16), "uint16");
}

}  // namespace espalier::data
