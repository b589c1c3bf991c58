// One network that several processes train together, each on its part of every batch: what the trainers of
// such networks have in common.
//
// Kept true: parts are equal, so a mean over the batch is the mean of the parts' means; what share_network()
// leaves is the same bits at every process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/lanes/norm/synced.h"
#include "espalier/lanes/parameter.h"
#include "espalier/ranks/world.h"

namespace espalier::train {

// The samples of a batch that each rank has. batch: of all ranks together; refused where it does not divide.
int64_t part_of_batch(int64_t batch, int64_t ranks);
inline int64_t part_of_batch(int64_t batch, const ranks::World& world) {
  return part_of_batch(batch, world.size());
}

struct BatchRange {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
};
// The batches of a split that this rank scores: as many as another rank, or one more.
BatchRange own_batches(int64_t num_batches, const ranks::World& world);

// What synced norms add up with. The world outlives it.
lanes::SumOverAll sum_over(ranks::World& world);

// Values become those of rank 0, and compute copies follow.
void share_network(ranks::World& world, const std::vector<lanes::NamedParameter>& parameters,
                   const std::vector<at::Tensor>& buffers);

}  // namespace espalier::train
