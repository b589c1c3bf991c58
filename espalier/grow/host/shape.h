// What a host network looks like before it is built: its options, and its slots in both orders.
//
// Kept true: a host that check_host() passes can be built; action indices are row-major (all of row 0, then
// row 1) and the order of execution is that of the forward pass (r0c0, r1c0, r0c1, ...); both orders list the
// same slots.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/grow/host/frame.h"
#include "espalier/tensor/layout.h"

namespace espalier::grow {

struct CnnHostOptions {
  int64_t lanes = 1;
  int64_t in_channels = 3;
  int64_t height = 32;
  int64_t width = 32;
  int64_t num_classes = 10;
  int64_t n_blocks = 3;        // at least 2
  int64_t base_channels = 32;  // block i has base * 2^i
  int64_t pool_layers = -1;    // how many blocks, from the first on, end in a 2x2 max pool; -1: all
  int64_t kernel_size = 3;     // odd: a convolution keeps height and width
  MemoryFormat memory_format = MemoryFormat::kChannelsLast;
  uint64_t seed = 0;  // for the parameters at birth, those of seeds included
  // [lanes] which of a job's lanes each one is, where several stacks share them: first values depend on
  // it; empty: 0, 1, ...
  std::vector<int64_t> lane_ids = {};

  HostFrame frame() const {
    return {lanes, in_channels, height, width, num_classes, memory_format, seed, lane_ids};
  }
  // The same network for other data: what a job tells it.
  CnnHostOptions in(const HostFrame& frame) const;
};

// Refuses options that no host can have: among them pooling below 1x1.
void check_host(const CnnHostOptions& options);

// Refuses, in one sentence, a batch in whose training a block's norm would see a single value per channel.
// Seeds have norms of their own samples, which no batch is too small for. flag: what the batch is called,
// "--batch".
void check_training(const CnnHostOptions& options, int64_t batch, std::string_view flag);

// pool_layers with -1 resolved.
int64_t num_pooled(const CnnHostOptions& options);

std::vector<SlotSpec> slots_by_action(const CnnHostOptions& options);
std::vector<SlotSpec> slots_by_execution(const CnnHostOptions& options);

// Per lane, before anything grew on it.
int64_t num_parameters(const CnnHostOptions& options);

}  // namespace espalier::grow
