// A dataset in host memory, as every source delivers it: named fields in channels-last order and one label
// per sample, for a train and a test split, and for validation where the source has such a split. No torch
// here: the readers of outside bytes build in seconds and can be fuzzed alone.
//
// Kept true: all fields of a split have as many samples as there are labels, in the same order; all splits
// have the same fields (name, type, height, width, channels, in the same order); labels are indices into
// class_names. check_dataset() verifies it, and load_source() calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace espalier::data {

enum class SampleType : uint8_t { kU8, kU16 };

// Bytes of one value: 1 or 2.
int64_t bytes_of(SampleType type);
// "uint8" or "uint16".
const char* name_of(SampleType type);

struct FieldSpec {
  std::string name;
  SampleType type = SampleType::kU8;
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;

  int64_t bytes_per_sample() const { return height * width * channels * bytes_of(type); }
  // What the samples take; fails, naming the field, where a size is negative or memory could not hold them.
  int64_t size_bytes(int64_t num_samples) const;
  bool operator==(const FieldSpec&) const = default;
};

struct HostField {
  FieldSpec spec;
  std::shared_ptr<const std::byte> values;  // [N,H,W,C] u8|u16 host; keeps its buffer or file mapping alive
  int64_t size_bytes = 0;                   // the size of `values`: N samples, no more and no fewer
};

struct HostSplit {
  std::vector<HostField> fields;
  std::vector<int64_t> labels;  // [N] i64 host

  int64_t num_samples() const { return static_cast<int64_t>(labels.size()); }
};

// Per channel, of the train split, of values scaled to [0,1] (divided by 255 or 65535); population variance.
struct FieldStatistics {
  std::vector<double> mean;    // [C]
  std::vector<double> stddev;  // [C]
};

struct BadSample {
  std::string path;
  int64_t index = 0;  // in its split's order, counting the bad ones
  std::string reason;
};

struct HostDataset {
  std::string origin;  // canonical: "cifar10:/abs/path", "synthetic:shapes10?seed=0"
  std::vector<std::string> class_names;
  HostSplit train;
  HostSplit test;
  HostSplit validation;  // where the source has one of its own; without fields and labels where it has none
  std::vector<FieldStatistics> statistics;  // one per field, in the order of the fields
  std::vector<BadSample> skipped;           // only where on-bad-sample is skip

  bool has_validation() const { return !validation.fields.empty(); }
  int64_t num_classes() const { return static_cast<int64_t>(class_names.size()); }
};

// A buffer of `size` bytes, uninitialised, aligned to 256 bytes.
std::shared_ptr<std::byte> allocate_host(int64_t size_bytes);

// The field over a buffer of its size, for a source to fill.
struct NewField {
  std::shared_ptr<std::byte> values;  // [N,H,W,C] u8|u16 host, uninitialised
  HostField field;
};
NewField allocate_field(const FieldSpec& spec, int64_t num_samples);

// Exact integer sums on all cores, so the same bits whatever the number of threads. Fails where the field has
// another number of samples.
FieldStatistics compute_statistics(const HostField& field, int64_t num_samples);

// Fails with one sentence naming what does not hold.
void check_dataset(const HostDataset& dataset);

}  // namespace espalier::data
