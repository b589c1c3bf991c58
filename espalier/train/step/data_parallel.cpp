#include "espalier/train/step/data_parallel.h"

#include <c10/core/GradMode.h>

#include "espalier/core/error.h"

namespace espalier::train {

int64_t part_of_batch(int64_t batch, int64_t ranks) {
  const int64_t part = batch / ranks;
  if (batch % ranks != 0)
    fail_usage(
        "--batch {}: is the batch of all {} ranks together, and they have equal parts of it: give a multiple "
        "of {}, such as {}",
        batch, ranks, ranks, ranks * (part + 1));
  return part;
}

BatchRange own_batches(int64_t num_batches, const ranks::World& world) {
  return {.begin = num_batches * world.rank() / world.size(),
          .end = num_batches * (world.rank() + 1) / world.size()};
}

lanes::SumOverAll sum_over(ranks::World& world) {
  return [&world](const at::Tensor& values) { world.sum_(values); };
}

void share_network(ranks::World& world, const std::vector<lanes::NamedParameter>& parameters,
                   const std::vector<at::Tensor>& buffers) {
  if (world.is_alone()) return;
  const c10::NoGradGuard no_grad;
  const auto share = [&](const at::Tensor& values) {
    const at::Tensor dense = values.clone(at::MemoryFormat::Contiguous);
    world.broadcast_(dense);
    values.copy_(dense);
  };
  for (const lanes::NamedParameter& named : parameters) {
    share(named.parameter->storage());
    named.parameter->refresh();
  }
  for (const at::Tensor& buffer : buffers) share(buffer);
}

}  // namespace espalier::train
