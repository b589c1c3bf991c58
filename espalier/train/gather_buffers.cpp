#include "espalier/train/gather_buffers.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "espalier/core/error.h"

namespace espalier::train {

GatherBuffers::GatherBuffers(data::GatherCall whole, const std::vector<size_t>& fields, int64_t lanes,
                             at::ScalarType type, MemoryFormat format)
    : call(std::move(whole)) {
  std::vector<at::Tensor> stored, affine;
  for (const size_t field : fields) {
    stored.push_back(call.fields.at(field));
    affine.push_back(call.affine.at(field));
  }
  call.fields = stored;
  call.affine = affine;
  if (call.lane_ids.size(0) < lanes)
    fail_usage("step: the plan serves {} lanes of {}", call.lane_ids.size(0), lanes);
  call.lane_ids = call.lane_ids.narrow(0, 0, lanes);
  const at::TensorOptions device(call.lane_ids.device());
  for (const at::Tensor& each : stored)
    images.push_back(empty_stacked({lanes, call.plan.batch, each.size(1), each.size(2), each.size(3)}, format,
                                   device.dtype(type)));
  labels = at::empty({lanes, call.plan.batch}, device.dtype(at::kLong));
  position = at::zeros({2}, device.dtype(at::kLong));
  call.position = position;
  call.out = images;
  call.labels_out = {labels};
}

void GatherBuffers::gather() {
  gather_into(call);
}

void GatherBuffers::move_to(int64_t epoch) {
  position.zero_();
  position.select(0, 0).fill_(epoch);
}

void GatherBuffers::advance() {
  position.select(0, 1).add_(1);
}

}  // namespace espalier::train
