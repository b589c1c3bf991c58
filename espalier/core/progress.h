// How long work tells its caller how far it is. The library never prints: the command line draws a bar on a
// terminal and plain lines elsewhere; tests and embedders pass an empty function.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

namespace espalier {

// Called by one thread at a time. `total` is 0 where it is not known.
using Progress = std::function<void(std::string_view what, int64_t done, int64_t total)>;

}  // namespace espalier
