// Files of policies: the header and what its metadata says. Held: what was accepted is of sizes that its
// tensors can hold, and is written as the metadata that it was read from.
#include "espalier/train/control/policy_header.h"
#include "espalier/train/control/policy_terms.h"
#include "fuzz/metadata_mutation.h"
#include "fuzz/target.h"

using namespace espalier;

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return fuzz::mutate_tensor_file(data, size, max_size, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::reads([&] {
    const SafetensorsHeader file = parse_safetensors(fuzz::bytes_of(data, size), "file");
    fuzz::reads(
        [&] { fuzz::require(train::policy_rounds(file.metadata, "file") >= 0, "rounds of at least 0"); });
    fuzz::reads([&] {
      const train::PolicyTerms terms = train::policy_terms(file.metadata, "file");
      fuzz::require(train::policy_terms(train::metadata_of(terms), "again") == terms,
                    "terms are read as they were written");
    });
    const int64_t values = fuzz::num_values(file);
    const train::PolicyHeader header = train::policy_header(file.metadata, values, "file");
    for (const int64_t each : {header.space.num_slots, header.space.num_blueprints, header.num_features,
                               header.embedding_size, header.encoder_size, header.hidden_size})
      fuzz::require(each >= 1 && each <= values, "a size that the tensors can hold");
    const Metadata written = train::metadata_of(header);
    fuzz::require(train::metadata_of(train::policy_header(written, values, "again")) == written,
                  "what was written is read as the same");
  });
  return 0;
}
