// Which definitions hold where ours differ from those of the network that ours comes from: how modality
// dropout draws and ramps up, what the balance loss is, how widths are scaled, and what a stream is frozen
// with. docs/linet.md has both side by side.
#pragma once

#include <cstdint>

namespace espalier::linet {

enum class LinetRules : uint8_t { kOriginal, kEspalier };

}  // namespace espalier::linet
