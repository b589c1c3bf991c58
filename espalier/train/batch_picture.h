// A batch as a person looks at it: the first images of the first lane, side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/train/gather_buffers.h"

namespace espalier::train {

struct BatchPicture {
  std::string name;  // of the field's stream
  int64_t width = 0;
  int64_t height = 0;
  int64_t channels = 1;
  std::vector<uint8_t> bytes;  // [height,width,channels]
};

// As they were before they were normalised, augmented as they are; a picture an image buffer. Reads from the
// device. Fields of neither 1 nor 3 channels show their first. Values beyond 8 bits are brought into them.
std::vector<BatchPicture> batch_pictures(const GatherBuffers& batch);

}  // namespace espalier::train
