// Brings an image to another size, for folders of unequal images (--resize HxW).
//
// uint8 holds colour: bilinear and antialiased (a triangle filter, as wide as the scale when shrinking), in
// fixed point: the same bits on every machine, and those of Pillow 11. uint16 holds depth: nearest, since
// averaging across a depth edge invents a surface that belongs to neither object.
#pragma once

#include <cstddef>
#include <span>

#include "espalier/data/sources/images/decode.h"
#include "espalier/data/sources/source.h"

namespace espalier::data {

// `in` is [H,W,C] of `shape`; `out` is [size.height,size.width,C] of the same channels and type.
void resize_into(const ImageShape& shape, std::span<const std::byte> in, ImageSize size,
                 std::span<std::byte> out);

}  // namespace espalier::data
