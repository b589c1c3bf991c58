// Pictures as PNG files in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace espalier::watch {

struct Picture {
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 3;            // 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA
  std::span<const uint8_t> bytes;  // [H,W,C], from the top row down
};

// A picture that holds its bytes, with the tag it is shown under.
struct NamedPicture {
  std::string name;
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 1;
  std::vector<uint8_t> bytes;  // [height,width,channels]
};

// The bytes of a PNG file with eight bits per channel.
std::string png_of(const Picture& picture);

}  // namespace espalier::watch
