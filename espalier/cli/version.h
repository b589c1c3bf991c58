// What this program is and what it was built with.
#pragma once

#include <string>

namespace espalier::cli {

// "espalier 0.1.0 (commit 52ff4fb)", then one line each for torch and CUDA.
std::string version_text();

std::string version();  // "0.1.0"

// The commit of the sources this program was built from, or "unknown".
std::string git_commit();

// The torch whose headers this program was built with.
std::string built_torch_version();

}  // namespace espalier::cli
