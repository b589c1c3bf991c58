// A grown network as a Python file: a plain nn.Module of the same structure, that needs torch alone and reads
// the safetensors file beside it.
#pragma once

#include <string>

#include "espalier/grow/description.h"
#include "espalier/grow/host/registry.h"
#include "espalier/grow/seeds/blueprint.h"

namespace espalier::grow {

// stem: the name that both files have, without its extension. Fails, naming it, for a host or a blueprint
// that does not describe itself in Python. Seeds that are not felt are left out.
std::string python_text(const NetworkDescription& network, const BlueprintRegistry& blueprints,
                        const std::string& stem);

}  // namespace espalier::grow
