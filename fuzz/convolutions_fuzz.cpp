// convolutions.json. Held: what was accepted is written and read back as the same choices, each a way that
// there is.
#include <nlohmann/json.hpp>

#include "espalier/lanes/conv/choice.h"
#include "fuzz/target.h"

using namespace espalier;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::reads([&] {
    const lanes::ConvChoices choices = lanes::parse_conv_choices(fuzz::text_of(data, size), "file");
    for (const auto& [key, way] : choices) fuzz::require(lanes::is_conv_way(way), "a way that there is");
    const std::string written = nlohmann::json(choices).dump();
    fuzz::require(lanes::parse_conv_choices(written, "again") == choices,
                  "what was written is read as the same");
  });
  return 0;
}
