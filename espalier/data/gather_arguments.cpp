#include "espalier/data/gather_arguments.h"

#include <c10/util/Exception.h>

namespace espalier::data {
namespace {

PlanKind plan_kind(std::string_view name) {
  if (name == "split") return PlanKind::kSplit;
  if (name == "own") return PlanKind::kOwn;
  TORCH_CHECK(name == "shared", "gather_into: plan: want split, own or shared, got '", name, "'");
  return PlanKind::kShared;
}

void check_field(const GatherArguments& call, size_t f) {
  const at::Tensor& field = call.fields[f];
  const auto type = field.scalar_type();
  TORCH_CHECK(type == at::kByte || type == at::kUInt16 || type == at::kFloat || type == at::kBFloat16,
              "gather_into: fields[", f, "]: want uint8, uint16, float32 or bfloat16, got ", type);
  TORCH_CHECK(field.dim() == 4, "gather_into: fields[", f, "]: want [N,C,H,W], got ", field.sizes());
  TORCH_CHECK(!is_planar(field) || field.is_contiguous(), "gather_into: fields[", f,
              "]: want channels-last or contiguous, got strides ", field.strides(), " of ", field.sizes());
  TORCH_CHECK(field.size(0) == call.plan.num_samples, "gather_into: fields[", f, "]: want ",
              call.plan.num_samples, " samples, as many as labels, got ", field.size(0));
  TORCH_CHECK(field.size(2) * field.size(3) * field.size(1) < (int64_t{1} << 31), "gather_into: fields[", f,
              "]: want below 2^31 values a sample, got ", field.sizes());
  const at::Tensor& affine = call.affine[f];
  TORCH_CHECK(affine.scalar_type() == at::kFloat && affine.sizes() == at::IntArrayRef({2, field.size(1)}) &&
                  affine.is_contiguous(),
              "gather_into: affine[", f, "]: want [2,", field.size(1), "] float32, got ", affine.sizes(), " ",
              affine.scalar_type());
}

// Outputs have the fields' sizes and layout, one type, one device; owned ones as many samples as the plan
// gives.
void check_out(const GatherArguments& call, const at::Tensor& out, size_t field, int64_t samples) {
  const at::Tensor& from = call.fields[field];
  const at::Tensor lane = call.stacked && call.num_lanes > 0 ? out.select(0, 0) : out;
  TORCH_CHECK(lane.dim() == 4 && lane.size(0) == samples && lane.sizes().slice(1) == from.sizes().slice(1),
              "gather_into: out: want ", samples, " samples of ", from.sizes().slice(1), " a lane, got ",
              out.sizes());
  TORCH_CHECK(is_planar(from) ? lane.is_contiguous() : lane.is_contiguous(c10::MemoryFormat::ChannelsLast),
              "gather_into: out: want the layout of fields[", field, "], got strides ", out.strides());
  TORCH_CHECK(out.scalar_type() == call.out[0].scalar_type() && out.device() == call.out[0].device(),
              "gather_into: out: want one type and device for all, got ", out.scalar_type(), " on ",
              out.device(), " and ", call.out[0].scalar_type(), " on ", call.out[0].device());
}

}  // namespace

GatherArguments check_arguments(at::TensorList fields, const at::Tensor& labels, at::TensorList affine,
                                const at::Tensor& lane_ids, const at::Tensor& position, std::string_view plan,
                                bool shuffle, int64_t seed, int64_t batch, int64_t group_lanes, bool augment,
                                bool flip, int64_t crop_pad, int64_t augment_seed, at::TensorList out,
                                at::TensorList labels_out, const std::optional<at::Tensor>& mask_out) {
  GatherArguments call{.fields = fields,
                       .labels = labels,
                       .affine = affine,
                       .lane_ids = lane_ids,
                       .position = position,
                       .plan = {.kind = plan_kind(plan),
                                .shuffled = shuffle,
                                .key = static_cast<uint64_t>(seed),
                                .num_samples = labels.numel(),
                                .batch = batch,
                                .group_lanes = group_lanes},
                       .augmentation = {.enabled = augment,
                                        .flip = flip,
                                        .crop_pad = static_cast<int32_t>(crop_pad),
                                        .seed = static_cast<uint64_t>(augment_seed)},
                       .out = out,
                       .labels_out = labels_out,
                       .mask_out = mask_out.value_or(at::Tensor())};
  call.num_lanes = lane_ids.numel();
  call.stacked = labels_out.size() == 1 && labels_out[0].dim() == 2;

  TORCH_CHECK(!fields.empty() && affine.size() == fields.size(),
              "gather_into: fields: want at least one, and as many "
              "affine, got ",
              fields.size(), " and ", affine.size());
  TORCH_CHECK(labels.scalar_type() == at::kLong && labels.dim() == 1 && labels.is_contiguous(),
              "gather_into: labels: want [N] int64, got ", labels.sizes(), " ", labels.scalar_type());
  TORCH_CHECK(batch >= 1, "gather_into: batch: want at least 1, got ", batch);
  TORCH_CHECK(group_lanes >= 1, "gather_into: group_lanes: want at least 1, got ", group_lanes);
  TORCH_CHECK(crop_pad >= 0 && crop_pad < (1 << 20), "gather_into: crop_pad: want 0 to 2^20, got ", crop_pad);
  TORCH_CHECK(lane_ids.scalar_type() == at::kLong && lane_ids.is_contiguous(),
              "gather_into: lane_ids: want [L] int64");
  TORCH_CHECK(position.scalar_type() == at::kLong && position.numel() == 2 && position.is_contiguous(),
              "gather_into: position: want [2] int64 (epoch, batch), got ", position.sizes());
  for (size_t f = 0; f < fields.size(); ++f) check_field(call, f);

  const size_t want_out = call.stacked ? fields.size() : static_cast<size_t>(call.num_lanes) * fields.size();
  TORCH_CHECK(out.size() == want_out && !out.empty(), "gather_into: out: want ", want_out, " tensors, got ",
              out.size());
  if (call.stacked) {
    for (size_t f = 0; f < fields.size(); ++f) {
      TORCH_CHECK(out[f].dim() == 5 && out[f].size(0) == call.num_lanes, "gather_into: out[", f, "]: want [",
                  call.num_lanes, ",", batch, ",C,H,W], got ", out[f].sizes());
      check_out(call, out[f], f, batch);
    }
    TORCH_CHECK(labels_out[0].sizes() == at::IntArrayRef({call.num_lanes, batch}) &&
                    labels_out[0].is_contiguous() && labels_out[0].scalar_type() == at::kLong,
                "gather_into: labels_out: want [", call.num_lanes, ",", batch, "] int64, got ",
                labels_out[0].sizes());
    TORCH_CHECK(!call.mask_out.defined() ||
                    (call.mask_out.sizes() == labels_out[0].sizes() &&
                     call.mask_out.scalar_type() == at::kBool && call.mask_out.is_contiguous()),
                "gather_into: mask_out: want [", call.num_lanes, ",", batch, "] bool");
    return call;
  }
  TORCH_CHECK(position.is_cpu(),
              "gather_into: position: want it on the CPU for owned outputs, whose sizes follow it");
  TORCH_CHECK(lane_ids.numel() == static_cast<int64_t>(labels_out.size()) && !call.mask_out.defined(),
              "gather_into: labels_out: want ", call.num_lanes, " tensors and no mask, got ",
              labels_out.size());
  for (size_t i = 0; i < out.size(); ++i)
    check_out(call, out[i], i % fields.size(), labels_out[i / fields.size()].numel());
  return call;
}

}  // namespace espalier::data
