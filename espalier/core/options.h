// One declaration an option: a struct of options lists its members once, in visit(), and that list serves the
// command line, --help, --print-config, the saved configuration and its validation.
//
//   struct TrainOptions {
//     int64_t batch = 512;
//     template <class Visitor> void visit(Visitor&& v) {
//       v({.name = "batch", .help = "samples a lane and step", .low = 1, .high = 1 << 20}, batch);
//     }
//   };
//
// Members are bool, int64_t, uint64_t, double or std::string; their initialisers are the defaults. Structs nest:
// visit() may call another struct's visit(v).
#pragma once

#include <limits>
#include <string_view>
#include <vector>

namespace espalier {

struct OptionInfo {
  std::string_view name;  // "batch-per-env": the flag without dashes, and the key in a configuration
  std::string_view help;
  double low = -std::numeric_limits<double>::infinity();  // inclusive, for numbers
  double high = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> choices = {};  // for strings; empty: any text
};

}  // namespace espalier
