// Files of exported networks: the header and the description in its metadata. Held: what was accepted has
// sizes, classes, means and deviations that a network can have, and is written as what it was read from.
#include <cmath>
#include <nlohmann/json.hpp>

#include "espalier/grow/description.h"
#include "fuzz/metadata_mutation.h"
#include "fuzz/target.h"

using namespace espalier;

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return fuzz::mutate_tensor_file(data, size, max_size, seed);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::reads([&] {
    const SafetensorsHeader file = parse_safetensors(fuzz::bytes_of(data, size), "file");
    const grow::NetworkDescription network = grow::network_description(file.metadata, "file");
    for (const int64_t each : {network.channels, network.height, network.width, network.num_classes()})
      fuzz::require(each >= 1, "at least one of each");
    fuzz::require(
        std::ssize(network.mean) == network.channels && std::ssize(network.deviation) == network.channels,
        "a mean and a deviation for each channel");
    for (const double each : network.deviation)
      fuzz::require(std::isfinite(each) && each > 0, "a deviation above 0");
    for (const grow::SeedDescription& seed : network.seeds)
      fuzz::require(holds_seed(seed.state.stage) && !fault_in(seed.state), "a sound state with a seed");
    const Metadata written = grow::metadata_of(network);
    fuzz::require(grow::metadata_of(grow::network_description(written, "again")) == written,
                  "what was written is read as the same");
  });
  return 0;
}
