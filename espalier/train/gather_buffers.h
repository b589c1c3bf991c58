// The batch that a step gathers by itself: fields of a resident dataset in buffers of its own, at a position
// on the device, so that a captured step moves on when it is replayed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "espalier/core/layout.h"
#include "espalier/data/gather.h"

namespace espalier::train {

struct GatherBuffers {
  // call: GatherIterator::gather_call(); fields: which of the data's; lanes: of the buffers; type, format: of
  // the images.
  GatherBuffers(data::GatherCall call, const std::vector<size_t>& fields, int64_t lanes, at::ScalarType type,
                MemoryFormat format);

  void gather();                // at the position; one launch, whatever the fields
  void move_to(int64_t epoch);  // its first batch
  void advance();               // on the device

  at::Device device() const { return labels.device(); }

  data::GatherCall call;
  std::vector<at::Tensor> images;  // F x [L,B,C,H,W]
  at::Tensor labels;               // [L,B] i64
  at::Tensor position;             // [2] i64 device: epoch, batch
};

}  // namespace espalier::train
