// The first step of a population as a file: what peers begin with, and what they have to arrive at before
// they are timed (bench/peers/first_step.py reads it).
#pragma once

#include <string>

#include "espalier/train/population/config.h"
#include "espalier/train/population/shard.h"

namespace espalier::bench {

// How that step is made by everybody: plain SGD with Nesterov momentum, at a fixed rate and without clipping,
// which we and peers do not all do alike.
train::PopulationConfig first_step_config(train::PopulationConfig config);

// Moves every parameter of every lane a little: seeds begin with zeros in their last layer, so that they add
// nothing, and a peer that left one out would not be noticed.
void stir(grow::NetworkStack& population);

// Makes the first step of a shard that has made none, and writes, safetensors: `images` [L,B,C,H,W] f32,
// `labels` [L,B] i64, `losses` [L] f32, every value of lane l before the step as `l.NAME`, and as
// `l.after.NAME` the first convolution's and the classifier's weights after it.
void write_first_step(const std::string& path, train::Shard& shard);

}  // namespace espalier::bench
