// Files of multi-stream networks: the header and the shape in its metadata. Held: what was accepted is a
// shape of at least one of everything, no larger than its tensors, and is written as the metadata that it was
// read from.
#include "espalier/linet/metadata.h"
#include "fuzz/metadata_mutation.h"
#include "fuzz/target.h"

using namespace espalier;

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return fuzz::mutate_tensor_file(data, size, max_size, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::reads([&] {
    const SafetensorsHeader file = parse_safetensors(fuzz::bytes_of(data, size), "file");
    const int64_t values = fuzz::num_values(file);
    const linet::LinetHeader header = linet::linet_header(file.metadata, values, "file");
    fuzz::require(header.stages.size() == header.widths.size() && header.num_classes >= 1, "a shape");
    for (const auto* list : {&header.streams, &header.stages, &header.widths}) {
      fuzz::require(!list->empty(), "at least one of each");
      for (const int64_t each : *list)
        fuzz::require(each >= 1 && each <= values, "a size that the tensors can hold");
    }
    const Metadata written = linet::metadata_of(header);
    fuzz::require(linet::metadata_of(linet::linet_header(written, values, "again")) == written,
                  "what was written is read as the same");
  });
  return 0;
}
