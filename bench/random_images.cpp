#include "bench/random_images.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "espalier/core/random/philox.h"

namespace espalier::bench {

data::HostDataset random_images(int64_t side, int64_t count) {
  data::HostDataset dataset;
  dataset.origin = "random";
  dataset.class_names.resize(10);
  const data::FieldSpec spec{"image", data::SampleType::kU8, side, side, 3};
  for (auto [split, samples] : {std::pair{&dataset.train, count}, std::pair{&dataset.test, int64_t{10}}}) {
    data::NewField made = data::allocate_field(spec, samples);
    const int64_t bytes = made.field.size_bytes;
    for (int64_t at = 0; at < bytes; at += 16) {
      const Words4 words = philox4x32(1, static_cast<uint32_t>(at), static_cast<uint32_t>(at >> 32), 0, 0);
      std::memcpy(made.values.get() + at, words.word, static_cast<size_t>(std::min<int64_t>(16, bytes - at)));
    }
    split->fields.push_back(std::move(made.field));
    split->labels.resize(static_cast<size_t>(samples));
    for (int64_t i = 0; i < samples; ++i) split->labels[static_cast<size_t>(i)] = i % 10;
  }
  dataset.statistics.push_back({{0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}});
  return dataset;
}

}  // namespace espalier::bench
