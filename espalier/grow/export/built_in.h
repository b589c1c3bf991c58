// The hosts and blueprints that come with the library, in Python: what host/cnn.h and seeds/modules.h say, as
// anyone would write it.
#pragma once

#include <functional>
#include <string_view>

#include "espalier/grow/export/python_module.h"
#include "espalier/grow/host/shape.h"
#include "espalier/grow/seeds/blueprint.h"

namespace espalier::grow {

// options: with the image sizes and classes of its data.
PythonHost python_cnn(const CnnHostOptions& options);

// For a blueprint that built_in_blueprints() has.
std::function<PythonSeed(const SeedShape&)> built_in_python(std::string_view blueprint);

}  // namespace espalier::grow
