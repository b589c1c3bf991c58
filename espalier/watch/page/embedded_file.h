// The files of page/, inside the program (cmake/embed.cmake).
#pragma once

#include <string_view>

namespace espalier::watch {

// Its bytes, by its name: "report.css". Empty: there is none.
std::string_view embedded_file(std::string_view name);

}  // namespace espalier::watch
