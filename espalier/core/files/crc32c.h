// CRC-32C (Castagnoli), the checksum of TensorBoard's records and of a checkpoint's tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace espalier {

// `before`: the checksum of the bytes in front of these, so that a stream may be summed piece by piece.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace espalier
