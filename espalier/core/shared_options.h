// Options that jobs and benchmarks have in common: one idea has one name, and the same aliases, wherever
// it is an option (docs/flags.md).
#pragma once

#include <string_view>

#include "espalier/core/options.h"

namespace espalier {

inline OptionInfo lanes_option(std::string_view help, double low = 1, double high = 4096) {
  return {.name = "lanes", .help = help, .low = low, .high = high, .aliases = {{.name = "envs"}}};
}

inline OptionInfo batch_option(std::string_view help, double high = 1 << 20) {
  return {.name = "batch", .help = help, .low = 1, .high = high, .aliases = {{.name = "batch-per-env"}}};
}

// Jobs of several devices have --devices instead (cli/flags/machine.h).
inline OptionInfo device_option(std::string_view help) {
  return {.name = "device", .help = help, .placeholder = "DEVICE", .aliases = {{.name = "devices"}}};
}

inline OptionInfo force_option(std::string_view help = "overwrite the file where it exists") {
  return {.name = "force", .help = help};
}

// Benchmarks fix their convolutions alone; jobs say what else it is to them.
inline OptionInfo deterministic_option(
    std::string_view help = "fixed convolutions instead of those that are measured to be fastest") {
  return {.name = "deterministic", .help = help};
}

inline OptionInfo precision_option(std::string_view help) {
  return {.name = "precision",
          .help = help,
          .aliases = {{.name = "amp", .value = "auto"},
                      {.name = "amp-dtype", .values = {{"bfloat16", "bf16"}, {"float16", "fp16"}}}}};
}

}  // namespace espalier
