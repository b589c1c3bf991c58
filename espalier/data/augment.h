// Where a sample's pixels come from after a random crop and flip: a pure function of (seed, epoch, sample),
// so a batch can be made again whatever the batch size, the lanes or the devices, and every field of a sample
// moves alike.
#pragma once

#include <cstdint>

#include "espalier/core/host_device.h"
#include "espalier/core/random/philox.h"

namespace espalier::data {

struct Augmentation {
  bool enabled = false;
  bool flip = true;      // mirror half of the samples, left to right
  int32_t crop_pad = 4;  // pad by so many black pixels on each side, then cut out the old size
  uint64_t seed = 0;
};

// Output pixel (y, x) is input pixel (y + shift_y, x' + shift_x), x' = mirrored ? W - 1 - x : x; black
// outside.
struct Displacement {
  int32_t shift_y = 0;
  int32_t shift_x = 0;
  bool mirrored = false;
};

ESPALIER_HOST_DEVICE Displacement displacement(const Augmentation& augmentation, uint64_t epoch,
                                               int64_t sample) {
  if (!augmentation.enabled) return {};
  // The epoch's upper half is left out of the counter: 2^32 epochs are more than anyone trains.
  const Words4 random =
      philox4x32(augmentation.seed, static_cast<uint32_t>(epoch), static_cast<uint32_t>(sample),
                 static_cast<uint32_t>(static_cast<uint64_t>(sample) >> 32),
                 static_cast<uint32_t>(Purpose::kAugmentation));
  const auto places = static_cast<uint32_t>(2 * augmentation.crop_pad + 1);
  return {static_cast<int32_t>(below(random[0], places)) - augmentation.crop_pad,
          static_cast<int32_t>(below(random[1], places)) - augmentation.crop_pad,
          augmentation.flip && (random[2] >> 31) != 0};
}

}  // namespace espalier::data
