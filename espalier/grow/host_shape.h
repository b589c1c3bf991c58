// What a host network looks like before it is built: its options, the presets, its slots in both orders.
//
// Kept true: a host that check_host() passes can be built; action indices are row-major (all of row 0, then
// row 1) and the order of execution is that of the forward pass (r0c0, r1c0, r0c1, ...); both orders list the
// same slots.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/layout.h"

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
  uint64_t seed = 0;  // of the parameters at birth, those of seeds included
  // [lanes] which of a job's lanes each one is, where several populations share them: first values depend on
  // it; empty: 0, 1, ...
  std::vector<int64_t> lane_ids = {};

  int64_t lane_id(int64_t lane) const {
    return lane_ids.empty() ? lane : lane_ids[static_cast<size_t>(lane)];
  }
};

// A place where a seed may grow.
struct SlotSpec {
  std::string name;    // "r0c1"
  int64_t row = 0;     // 0: before the block's pooling, 1: after it
  int64_t column = 0;  // the block
  int64_t channels = 0;
  int64_t height = 0;
  int64_t width = 0;
};

// cifar_baseline  base  8, 3 blocks, all pooled: small enough for 128 lanes a step of milliseconds
// cifar_scale     base  8, 5 blocks, all pooled: down to 1x1
// cifar_wide      base 32, 3 blocks, all pooled: learns CIFAR-10 to about 76 %
// cifar_deep      base 32, 5 blocks, the first 3 pooled: the last two keep 4x4, so that 3x3 filters still
// have
//                 neighbours to look at
// An unknown name is refused with the list.
CnnHostOptions host_preset(std::string_view name);
const std::vector<std::string>& host_preset_names();

// Refuses options that no host can have: among them pooling below 1x1.
void check_host(const CnnHostOptions& options);

// pool_layers with -1 resolved.
int64_t num_pooled(const CnnHostOptions& options);

std::vector<SlotSpec> slots_by_action(const CnnHostOptions& options);
std::vector<SlotSpec> slots_by_execution(const CnnHostOptions& options);

// Of one lane, before anything grew on it.
int64_t num_parameters(const CnnHostOptions& options);

}  // namespace espalier::grow
