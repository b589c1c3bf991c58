// Which torch this process runs with, and the Python that has one: for `espalier doctor`, and for benchmarks
// that time what a user would write instead. Works without torch: then nothing is found.
#pragma once

#include <optional>
#include <string>

namespace espalier {

// The folder of the libtorch that is loaded; empty: none is.
std::string torch_library_folder();

struct TorchPython {
  std::string program;        // to be started as it is
  std::string torch_version;  // "2.11.0+cu130"
};

// The first that has torch, in this order: ESPALIER_PYTHON, the Python whose torch this process has loaded,
// python3. Asks for the package's version only: importing it would take seconds.
std::optional<TorchPython> find_torch_python();

}  // namespace espalier
