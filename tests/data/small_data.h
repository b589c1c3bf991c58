// Small datasets in host memory, with contents that a test can compute again.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "espalier/core/random/philox.h"
#include "espalier/data/resident.h"
#include "espalier/data/sources/host_dataset.h"

namespace espalier::data::testing {

inline HostField random_field(const FieldSpec& spec, int64_t num_samples, uint64_t seed) {
  NewField made = allocate_field(spec, num_samples);
  const int64_t bytes = made.field.size_bytes;
  for (int64_t at = 0; at < bytes; at += 4) {
    const uint32_t word = philox4x32(seed, static_cast<uint32_t>(at), 0, 0, 0)[0];
    std::memcpy(made.values.get() + at, &word, static_cast<size_t>(std::min<int64_t>(4, bytes - at)));
  }
  return made.field;
}

// Label i is i modulo 10, so a label tells a sample apart from its neighbours.
inline HostDataset small_dataset(std::vector<FieldSpec> specs, int64_t num_train, int64_t num_test) {
  HostDataset dataset;
  for (size_t f = 1; f < specs.size(); ++f)
    if (specs[f].name == specs[0].name) specs[f].name += std::to_string(f);  // names must differ
  dataset.origin = "test";
  dataset.class_names.resize(10, "class");
  uint64_t seed = 1;
  for (auto [split, count] : {std::pair{&dataset.train, num_train}, std::pair{&dataset.test, num_test}}) {
    for (const FieldSpec& spec : specs) split->fields.push_back(random_field(spec, count, seed++));
    for (int64_t i = 0; i < count; ++i) split->labels.push_back(i % 10);
  }
  for (size_t f = 0; f < specs.size(); ++f)
    dataset.statistics.push_back(compute_statistics(dataset.train.fields[f], num_train));
  return dataset;
}

inline FieldSpec image_spec(int64_t height = 32, int64_t width = 32, int64_t channels = 3) {
  return {"image", SampleType::kU8, height, width, channels};
}

inline std::shared_ptr<const ResidentDataset> resident(const HostDataset& dataset,
                                                       ResidentConfig options = {.validation = 0},
                                                       c10::Device device = c10::kCPU) {
  return make_resident(dataset, options, device, {});
}

}  // namespace espalier::data::testing
