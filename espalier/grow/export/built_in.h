// The hosts that come with the library, in Python: what host/cnn.h says, as anyone would write it. Kinds of
// seeds say so themselves (seeds/modules.cpp).
#pragma once

#include "espalier/grow/export/python_module.h"
#include "espalier/grow/host/shape.h"

namespace espalier::grow {

// options: with the image sizes and classes of its data.
PythonHost python_cnn(const CnnHostOptions& options);

}  // namespace espalier::grow
