// Grey images to colour and back (--channels), for folders that mix them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "espalier/data/sources/images/decode.h"

namespace espalier::data {

// `in` is [H,W,C] u8 of `shape`, C from 1 to 4; `out` is [H,W,channels] u8, channels 1 or 3. Grey is
// repeated; colour becomes its luma (ITU-R 601, in fixed point as Pillow does it); alpha is left out.
void convert_channels(const ImageShape& shape, std::span<const std::byte> in, int64_t channels,
                      std::span<std::byte> out);

}  // namespace espalier::data
