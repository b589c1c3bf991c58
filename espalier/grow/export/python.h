// A grown network as a Python file: a plain nn.Module of the same structure, that needs torch alone and reads
// the safetensors file beside it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "espalier/grow/description.h"
#include "espalier/grow/host/registry.h"
#include "espalier/grow/seeds/blueprint.h"

namespace espalier::grow {

// stem: the name that both files have, without its extension. Fails, naming it, for a host or a blueprint
// that does not describe itself in Python. Seeds that are not felt are left out.
std::string python_text(const NetworkDescription& network, const BlueprintRegistry& blueprints,
                        const std::string& stem);

// Why that would fail for a network of this host once seeds of these blueprints, by name, stand in it; none:
// it would not. To be asked before such a network is trained.
std::optional<std::string> fault_in_python(const NetworkDescription& bare,
                                           const std::vector<std::string>& planted,
                                           const BlueprintRegistry& blueprints);

}  // namespace espalier::grow
