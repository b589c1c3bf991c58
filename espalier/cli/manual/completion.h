// What a shell offers behind `espalier`: commands, flags, and the values of flags that have a list of them;
// file names behind flags that want a file.
#pragma once

#include <string>

#include "espalier/cli/manual/tree.h"

namespace espalier::cli {

// Scripts as each shell sources them.
std::string bash_completion(const CommandText& root);
std::string zsh_completion(const CommandText& root);
std::string fish_completion(const CommandText& root);

}  // namespace espalier::cli
