// Pictures as PNG files in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace espalier::watch {

struct Picture {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 3;            // 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA
  std::span<const uint8_t> bytes;  // [H,W,C], from the top row down
};

// The bytes of a PNG file with eight bits a channel.
std::string png_of(const Picture& picture);

}  // namespace espalier::watch
