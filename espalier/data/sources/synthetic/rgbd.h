// synthetic:rgbd: paired fields whose class needs both colour and depth, for multi-stream networks.
//
// class = 3 * shape + relief. The shape shows in `rgb` alone; the relief of the same, always round, object
// shows in `depth` alone; `orth` shows where the object is, and neither. So with one of them the other factor
// is a guess that is right one time in three: a network passes a third only with rgb and depth together.
#pragma once

#include <cstdint>

#include "espalier/data/sources/source.h"
#include "espalier/data/sources/synthetic/draw.h"

namespace espalier::data {

struct RgbdSample {
  uint8_t* rgb;     // [H,W,3] u8
  uint16_t* depth;  // [H,W,1] u16, millimetres
  uint8_t* orth;    // [H,W,1] u8
};

// Draws one sample: rgb depends on label / 3 only, depth on label % 3 only, orth on nothing.
void draw_rgbd(const SampleRandom::Key& key, int64_t label, const ImageSize& size, const RgbdSample& sample);

}  // namespace espalier::data
