// safetensors files: the header alone, and as a dataset. Held: the tensors of a header that was accepted lie
// in the file, in order, without hole or overlap; every value of a dataset that was accepted can be read.
#include "espalier/core/files/safetensors.h"

#include "espalier/data/sources/source.h"
#include "fuzz/memory_file.h"
#include "fuzz/safetensors_mutation.h"
#include "fuzz/target.h"

namespace {

using namespace espalier;

void check_header(const SafetensorsHeader& header, size_t file_bytes) {
  int64_t end =
      header.tensors.empty() ? static_cast<int64_t>(file_bytes) : header.tensors.front().offset_bytes;
  fuzz::require(end >= static_cast<int64_t>(kSafetensorsLengthBytes), "tensors begin after the header");
  for (const TensorEntry& tensor : header.tensors) {
    fuzz::require(tensor.offset_bytes == end, "a tensor begins where the one before ends");
    fuzz::require(tensor.length_bytes == tensor.size_bytes(), "a tensor is as long as its shape says");
    end += tensor.length_bytes;
  }
  fuzz::require(end == static_cast<int64_t>(file_bytes), "the last tensor ends with the file");
}

void read_values(const data::HostSplit& split) {
  unsigned sum = 0;
  for (const data::HostField& field : split.fields) {
    const int64_t size_bytes = split.num_samples() * field.spec.bytes_per_sample();
    for (int64_t i = 0; i < size_bytes; ++i) sum += std::to_integer<unsigned>(field.values.get()[i]);
  }
  [[maybe_unused]] static volatile unsigned keeps_the_loop;
  keeps_the_loop = sum;
}

}  // namespace

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  if (!fuzz::mutates_raw(seed) && size >= kSafetensorsLengthBytes) {
    const std::string file(reinterpret_cast<const char*>(data), size);
    const size_t stored = fuzz::store(fuzz::mutated_safetensors(file, max_size, seed), data, max_size);
    if (stored != 0) return stored;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = fuzz::bytes_of(data, size);
  const bool is_sound = fuzz::reads([&] { check_header(parse_safetensors(bytes, "file"), size); });
  if (!is_sound) return 0;
  const fuzz::MemoryFile file(bytes);
  fuzz::reads([&] {
    const data::HostDataset dataset = data::load_safetensors(file.path(), {});
    data::check_dataset(dataset);
    read_values(dataset.train);
    read_values(dataset.test);
  });
  return 0;
}
