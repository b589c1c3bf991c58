// What every host is given, and what it says of its slots, whatever it computes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "espalier/tensor/layout.h"

namespace espalier::grow {

// A place where a seed may grow.
struct SlotSpec {
  std::string name;    // "r0c1"
  int64_t row = 0;     // 0: before the block's pooling, 1: after it
  int64_t column = 0;  // the block
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
};

// What a job tells every host, whatever it computes.
struct HostFrame {
  int64_t lanes = 1;
  int64_t in_channels = 3;
  int64_t height = 32;
  int64_t width = 32;
  int64_t num_classes = 10;
  MemoryFormat memory_format = MemoryFormat::kChannelsLast;
  uint64_t seed = 0;  // for the parameters at birth, those of seeds included
  // [lanes] which of a job's lanes each one is, where several stacks share them: first values depend on
  // it; empty: 0, 1, ...
  std::vector<int64_t> lane_ids = {};

  int64_t lane_id(int64_t lane) const {
    return lane_ids.empty() ? lane : lane_ids[static_cast<size_t>(lane)];
  }
};

}  // namespace espalier::grow
