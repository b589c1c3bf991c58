// Manual pages, in the roff that man(1) reads: one per command, made from what --help says.
#pragma once

#include <string>

#include "espalier/cli/manual/tree.h"

namespace espalier::cli {

// "espalier-train-ppo": the name of a command's page, without its section.
std::string page_name(const CommandText& command);

// above: the command that this one stands below; nullptr for the program itself. version: the program's.
std::string manual_page(const CommandText& command, const CommandText* above, const std::string& version);

}  // namespace espalier::cli
