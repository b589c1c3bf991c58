#include "espalier/data/sources/host_dataset.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/machine/parallel.h"
#include "espalier/core/size_product.h"
#include "espalier/core/text/utf8.h"

namespace espalier::data {

namespace {

__extension__ using Wide = unsigned __int128;

// Sums of one channel. n samples of uint16 give at most n * 2^32 for the squares and n * n * 2^32 in the
// variance's numerator: 128 bits hold that up to n = 2^48, more than any host's memory.
struct ChannelSums {
  Wide sum = 0;
  Wide squares = 0;
};

// Values are summed in rows of kColumns pixels, value by value: vector code whatever the number of channels.
constexpr int64_t kColumns = 16;

template <class Value, class Partial>
void add_range(const Value* values, int64_t num_pixels, int64_t channels, std::vector<ChannelSums>& sums) {
  // A uint32 holds 66051 squares of a uint8; a uint64 holds 2^32 squares of a uint16.
  constexpr int64_t kRowsBeforeFlush = 65536;
  const auto row = static_cast<size_t>(channels * kColumns);
  std::vector<Partial> sum(row), squares(row);  // [kColumns * C]
  const int64_t num_rows = num_pixels / kColumns;
  for (int64_t begin = 0; begin < num_rows; begin += kRowsBeforeFlush) {
    std::fill(sum.begin(), sum.end(), Partial{0});
    std::fill(squares.begin(), squares.end(), Partial{0});
    const int64_t end = std::min(num_rows, begin + kRowsBeforeFlush);
    for (int64_t r = begin; r < end; ++r) {
      const Value* __restrict line = values + static_cast<size_t>(r) * row;
      Partial* __restrict to_sum = sum.data();
      Partial* __restrict to_squares = squares.data();
      for (size_t i = 0; i < row; ++i) {
        const Partial value = line[i];
        to_sum[i] += value;
        to_squares[i] += value * value;
      }
    }
    for (size_t i = 0; i < row; ++i) {
      ChannelSums& channel = sums[i % static_cast<size_t>(channels)];
      channel.sum += sum[i];
      channel.squares += squares[i];
    }
  }
  for (int64_t i = num_rows * kColumns * channels; i < num_pixels * channels; ++i) {
    const uint64_t value = values[i];
    ChannelSums& channel = sums[static_cast<size_t>(i % channels)];
    channel.sum += value;
    channel.squares += value * value;
  }
}

void check_spec(const FieldSpec& spec) {
  if (spec.name.empty()) fail("dataset: a field has no name; every field needs one");
  if (checked_product({spec.height, spec.width, spec.channels, bytes_of(spec.type)}).value_or(0) < 1) {
    fail(
        "dataset: field '{}' has size {}x{}x{}; height, width and channels must be at least 1 and fit in "
        "memory",
        spec.name, spec.height, spec.width, spec.channels);
  }
}

// Before anything reads the values by the number of samples.
void check_size(const HostField& field, int64_t num_samples, const char* whose) {
  check_spec(field.spec);
  const int64_t expected = field.spec.size_bytes(num_samples);
  if (num_samples > 0 && field.values == nullptr) {
    fail("dataset: field '{}' of {} has no values for its {} samples", field.spec.name, whose, num_samples);
  }
  if (field.size_bytes != expected) {
    fail("dataset: field '{}' of {} holds {} bytes, expected {}, {} samples of {} bytes, one for each label",
         field.spec.name, whose, field.size_bytes, expected, num_samples, field.spec.bytes_per_sample());
  }
}

// Names go into the files of a run, which are JSON.
void check_name(const char* what, std::string_view name) {
  if (!is_utf8(name)) fail("dataset: {} {} is not UTF-8: rename it", what, in_quotes(name));
}

void check_split(const char* name, const HostSplit& split, int64_t num_classes) {
  if (split.fields.empty()) fail("dataset: the {} split has no field; at least one is needed", name);
  std::set<std::string_view> seen;
  for (const HostField& field : split.fields) {
    check_spec(field.spec);
    check_name("the field", field.spec.name);
    if (!seen.insert(field.spec.name).second) {
      fail("dataset: the {} split has two fields named '{}'; names must differ", name, field.spec.name);
    }
  }
  for (size_t i = 0; i < split.labels.size(); ++i) {
    if (split.labels[i] < 0 || split.labels[i] >= num_classes) {
      fail("dataset: label {} of {} sample {} is out of range; expected 0 to {}", split.labels[i], name, i,
           num_classes - 1);
    }
  }
}

void check_same_fields(const HostSplit& train, const HostSplit& other, const char* name) {
  if (other.fields.size() != train.fields.size()) {
    fail("dataset: train has {} fields and {} has {}; both splits need the same", train.fields.size(), name,
         other.fields.size());
  }
  for (size_t i = 0; i < train.fields.size(); ++i) {
    const FieldSpec& want = train.fields[i].spec;
    const FieldSpec& got = other.fields[i].spec;
    if (want != got) {
      fail("dataset: field {} is '{}' {} {}x{}x{} in train and '{}' {} {}x{}x{} in {}; both must agree", i,
           want.name, name_of(want.type), want.height, want.width, want.channels, got.name, name_of(got.type),
           got.height, got.width, got.channels, name);
    }
    check_size(other.fields[i], other.num_samples(),
               name == std::string_view("test") ? "the test split" : "the validation split");
  }
}

}  // namespace

int64_t bytes_of(SampleType type) {
  return type == SampleType::kU8 ? 1 : 2;
}

const char* name_of(SampleType type) {
  return type == SampleType::kU8 ? "uint8" : "uint16";
}

int64_t FieldSpec::size_bytes(int64_t num_samples) const {
  const auto size = checked_product({num_samples, height, width, channels, bytes_of(type)});
  if (!size) {
    fail("dataset: field '{}': {} samples of {}x{}x{} {} do not fit in memory", name, num_samples, height,
         width, channels, name_of(type));
  }
  return *size;
}

std::shared_ptr<std::byte> allocate_host(int64_t size_bytes) {
  // Whole datasets are asked for on huge pages: 512 times fewer page faults while they are filled.
  constexpr int64_t kHugePageBytes = int64_t{2} << 20;
  constexpr int64_t kMaxBytes = int64_t{1} << 46;
  if (size_bytes < 0 || size_bytes > kMaxBytes) {
    fail("cannot allocate {} bytes of host memory; expected 0 to {}", size_bytes, kMaxBytes);
  }
  const bool is_large = size_bytes >= 2 * kHugePageBytes;
  const int64_t alignment = is_large ? kHugePageBytes : 256;
  const int64_t rounded = (std::max<int64_t>(size_bytes, 1) + alignment - 1) / alignment * alignment;
  void* memory = std::aligned_alloc(static_cast<size_t>(alignment), static_cast<size_t>(rounded));
  if (memory == nullptr) {
    fail("not enough host memory for a buffer of {} bytes; free some or use a smaller dataset", size_bytes);
  }
  if (is_large) madvise(memory, static_cast<size_t>(rounded), MADV_HUGEPAGE);  // advice: may be refused
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

NewField allocate_field(const FieldSpec& spec, int64_t num_samples) {
  const int64_t size_bytes = spec.size_bytes(num_samples);
  std::shared_ptr<std::byte> values = allocate_host(size_bytes);
  return {.values = values, .field = {.spec = spec, .values = values, .size_bytes = size_bytes}};
}

FieldStatistics compute_statistics(const HostField& field, int64_t num_samples) {
  const FieldSpec& spec = field.spec;
  check_size(field, num_samples, "statistics");
  const auto channels = static_cast<size_t>(spec.channels);
  FieldStatistics statistics{.mean = std::vector<double>(channels), .stddev = std::vector<double>(channels)};
  if (num_samples <= 0) return statistics;

  std::vector<ChannelSums> total(channels);
  std::mutex mutex;
  const int64_t pixels_per_sample = spec.height * spec.width;
  // About 1 MiB a range: long enough to make the lock cheap, short enough to balance the cores.
  const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 20) / spec.bytes_per_sample());
  parallel_ranges(num_samples, grain, [&](int64_t begin, int64_t end) {
    std::vector<ChannelSums> sums(channels);
    const std::byte* values = field.values.get() + begin * spec.bytes_per_sample();
    const int64_t num_pixels = (end - begin) * pixels_per_sample;
    if (spec.type == SampleType::kU8) {
      add_range<uint8_t, uint32_t>(reinterpret_cast<const uint8_t*>(values), num_pixels, spec.channels, sums);
    } else {
      add_range<uint16_t, uint64_t>(reinterpret_cast<const uint16_t*>(values), num_pixels, spec.channels,
                                    sums);
    }
    const std::lock_guard lock(mutex);
    for (size_t c = 0; c < channels; ++c) {
      total[c].sum += sums[c].sum;
      total[c].squares += sums[c].squares;
    }
  });

  const auto count = static_cast<Wide>(num_samples) * static_cast<Wide>(pixels_per_sample);
  const double scale = spec.type == SampleType::kU8 ? 255.0 : 65535.0;
  for (size_t c = 0; c < channels; ++c) {
    // n * sum(x^2) - sum(x)^2 is exact here and never negative, unlike its floating-point form.
    const Wide numerator = count * total[c].squares - total[c].sum * total[c].sum;
    const auto n = static_cast<double>(count);
    statistics.mean[c] = static_cast<double>(total[c].sum) / n / scale;
    statistics.stddev[c] = std::sqrt(static_cast<double>(numerator)) / n / scale;
  }
  return statistics;
}

void check_dataset(const HostDataset& dataset) {
  check_name("the place", dataset.origin);
  for (const std::string& name : dataset.class_names) check_name("the class", name);
  if (dataset.class_names.empty()) fail("dataset: no class names; expected one for each class");
  check_split("train", dataset.train, dataset.num_classes());
  check_split("test", dataset.test, dataset.num_classes());

  if (dataset.has_validation()) check_split("validation", dataset.validation, dataset.num_classes());

  const size_t num_fields = dataset.train.fields.size();
  if (dataset.statistics.size() != num_fields) {
    fail("dataset: statistics for {} fields, expected {}", dataset.statistics.size(), num_fields);
  }
  check_same_fields(dataset.train, dataset.test, "test");
  if (dataset.has_validation()) check_same_fields(dataset.train, dataset.validation, "validation");
  for (size_t i = 0; i < num_fields; ++i) {
    const FieldSpec& train = dataset.train.fields[i].spec;
    const auto channels = static_cast<size_t>(train.channels);
    if (dataset.statistics[i].mean.size() != channels || dataset.statistics[i].stddev.size() != channels) {
      fail("dataset: field '{}' has {} means and {} standard deviations, expected {}, one for each channel",
           train.name, dataset.statistics[i].mean.size(), dataset.statistics[i].stddev.size(), channels);
    }
    check_size(dataset.train.fields[i], dataset.train.num_samples(), "the train split");
  }
}

}  // namespace espalier::data
