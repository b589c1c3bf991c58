// The gather operator's arguments, checked: what gather.cpp hands to its kernels.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string_view>

#include "espalier/data/augment.h"
#include "espalier/data/lane_plan.h"

namespace espalier::data {

// The call with its arguments checked and both forms of output told apart.
struct GatherArguments {
  at::TensorList fields;
  at::Tensor labels;
  at::TensorList affine;
  at::Tensor lane_ids;
  at::Tensor position;
  LanePlan plan;
  Augmentation augmentation;
  at::TensorList out;
  at::TensorList labels_out;
  at::Tensor mask_out;  // undefined for owned outputs
  int64_t num_lanes = 0;
  bool stacked = false;

  // The output of one lane, [B or b, C, H, W].
  at::Tensor lane_out(int64_t lane, int64_t field) const {
    const auto f = static_cast<size_t>(field);
    return stacked ? out[f].select(0, lane) : out[static_cast<size_t>(lane) * fields.size() + f];
  }
  at::Tensor lane_labels(int64_t lane) const {
    return stacked ? labels_out[0].select(0, lane) : labels_out[static_cast<size_t>(lane)];
  }
};

// Whether images lie in memory channel by channel. Where both orders are one (C == 1), they do not.
inline bool is_planar(const at::Tensor& images) {
  return !images.is_contiguous(c10::MemoryFormat::ChannelsLast);
}

// Fails with a sentence that names the argument, what it should be and what it is. Nothing that passes makes
// a kernel read or write outside of its tensors. In O(tensors), and no tensor's values are read but those of
// small ones on the host: lane ids and positions on a device are left to lane_range(), affines that are not
// finite give values that are not.
GatherArguments check_arguments(at::TensorList fields, const at::Tensor& labels, at::TensorList affine,
                                const at::Tensor& lane_ids, const at::Tensor& position, std::string_view plan,
                                bool shuffle, int64_t seed, int64_t batch, int64_t group_lanes, bool augment,
                                bool flip, int64_t crop_pad, int64_t augment_seed, at::TensorList out,
                                at::TensorList labels_out, const std::optional<at::Tensor>& mask_out);

// Counts up the version of every output, so that torch finds a tensor that was saved for a backward pass and
// overwritten since.
void mark_changed(const GatherArguments& call);

}  // namespace espalier::data
