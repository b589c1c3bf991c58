#include "espalier/train/memory/data.h"

#include "espalier/data/delivery.h"
#include "espalier/data/ring.h"

namespace espalier::train {

MemoryPlan data_parts(const DataNeeds& data) {
  MemoryPlan plan;
  plan.add("data", data.bytes,
           data.residency == data::Residency::kDevice ? MemoryPlace::kDevice : MemoryPlace::kHost);
  return plan;
}

MemoryPlan batch_parts(const std::string& use, const BatchNeeds& needs) {
  const auto item = static_cast<int64_t>(c10::elementSize(needs.type));
  int64_t bytes = bounded_bytes({needs.lanes, needs.batch, 8});  // labels
  for (const std::vector<int64_t>& size : needs.image_sizes)
    bytes += stacked_bytes(needs.lanes, {needs.batch, size.at(0), size.at(1), size.at(2)}, item);
  MemoryPlan plan;
  plan.add("batches of " + use, bytes);
  if (needs.residency == data::Residency::kHost && !needs.device.is_cpu())
    plan.add("batches of " + use + " that are made ahead",
             bounded_bytes({data::ring_bytes({.capacity = data::kRingBatches,
                                              .device = needs.device,
                                              .lanes = needs.lanes,
                                              .batch = needs.batch,
                                              .image_sizes = needs.image_sizes,
                                              .type = needs.type})}));
  return plan;
}

}  // namespace espalier::train
