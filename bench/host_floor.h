// The floors of a host of three blocks, such as cifar_baseline: what its steps and its validation take at
// least on a machine of given rates, where every activation is kept and every layer is a kernel of its own.
// Of what is measured only the machine's rates go into them, nothing of our own steps.
#pragma once

#include <cstdint>

#include "bench/rates.h"

namespace espalier::bench {

struct HostSize {
  int64_t lanes = 1;
  int64_t samples = 1;  // per lane: of a step's batch, or of the split that is scored
  int64_t base = 8;     // filters of the first block
};

// The convolution's output y and the pooled p of each block are read and written as often as separate kernels
// have to, forward x y | y | y p, backward y p | y p y | y x, and y x again but for the first block. A
// convolution's pass takes as long as its products where that is longer.
double step_floor_us(const HostSize& size, int64_t bytes_a_value, const MachineRates& rates);

// A forward pass whose norms know their statistics: x y | y p of each block.
double scoring_floor_us(const HostSize& size, int64_t bytes_a_value, const MachineRates& rates);

}  // namespace espalier::bench
