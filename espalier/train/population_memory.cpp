#include "espalier/train/population_memory.h"

#include <algorithm>

#include "espalier/data/resident.h"
#include "espalier/grow/blueprint.h"
#include "espalier/grow/host_shape.h"
#include "espalier/train/population_setup.h"

namespace espalier::train {
namespace {

// Seeds a lane that are planned for: one under way and one that stayed.
constexpr int64_t kPlannedSeeds = 2;

// fp32 values, gradient, momentum, and the last good values with their momentum; and the compute copy.
int64_t bytes_of_parameter(int64_t compute_bytes) {
  return 5 * 4 + (compute_bytes < 4 ? compute_bytes : 0);
}

}  // namespace

MemoryPlan population_parts(const PopulationOptions& options, int64_t data_bytes,
                            const data::FieldSpec& field, int64_t num_classes, at::Device device) {
  const auto item = static_cast<int64_t>(c10::elementSize(precision_type(options.precision, device)));
  const grow::CnnHostOptions host = host_for(options, field, num_classes);
  const int64_t samples = options.lanes * options.batch;

  // A block keeps what its convolution gives and what its norm, ReLU and pooling make of it; on the way back
  // come the gradients of the widest of both. The CPU pools in a pass of its own.
  int64_t kept = 0, widest = 0, widest_slot = 0, slot_channels = 1;
  for (const grow::SlotSpec& slot : grow::slots_by_action(host)) {
    const int64_t values = slot.channels * slot.height * slot.width;
    kept += slot.row == 0 && !device.is_cpu() && slot.column < grow::num_pooled(host) ? values : 2 * values;
    widest = std::max(widest, 2 * values);
    if (values > widest_slot) {
      widest_slot = values;
      slot_channels = slot.channels;
    }
  }
  const int64_t images = field.channels * field.height * field.width;
  const int64_t weights = options.lanes * grow::num_parameters(host) * bytes_of_parameter(item);
  MemoryPlan plan;
  const auto add = [&](const char* what, int64_t bytes) {
    MemoryPart& part = plan.parts.emplace_back();
    part.what = what;
    part.bytes = bytes;
  };
  add("data", data_bytes);
  add("batches", (samples + options.batch) * (images * item + 8));
  add("weights, gradients, momentum, last good ones", weights);
  add("activations", samples * (kept + widest) * item);
  if (options.controller != "none") {
    // The heaviest blueprint at the widest place: input, output and what its two convolutions and norms keep.
    const grow::BlueprintRegistry blueprints;
    const int64_t parameters =
        blueprints.at(blueprints.index_of("conv_heavy")).num_parameters({.channels = slot_channels});
    const int64_t seed =
        options.lanes * parameters * bytes_of_parameter(item) + samples * 7 * widest_slot * item;
    add("seeds, two a lane at the widest place", kPlannedSeeds * seed);
  }
  return plan;
}

}  // namespace espalier::train
