#include "espalier/data/gather_arguments.h"

#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ostream>
#include <string>

namespace espalier::data {
namespace {

// An argument's name in a message: "labels", or "fields[2]".
struct ArgumentName {
  const char* name;
  int64_t index = -1;  // none
};

std::ostream& operator<<(std::ostream& stream, const ArgumentName& argument) {
  stream << argument.name;
  return argument.index < 0 ? stream : stream << '[' << argument.index << ']';
}

// One of a list: its place is part of its name.
ArgumentName in_list(const char* name, size_t index) {
  return {name, static_cast<int64_t>(index)};
}

PlanKind plan_kind(std::string_view name) {
  if (name == "split") return PlanKind::kSplit;
  if (name == "own") return PlanKind::kOwn;
  // Whatever Python hands over: the sentence stays one line.
  const bool is_word = name.size() <= 32 &&
                       std::all_of(name.begin(), name.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
  TORCH_CHECK(name == "shared", "gather_into: plan: want split, own or shared, got ",
              is_word ? fmt::format("'{}'", name) : fmt::format("{} bytes of something else", name.size()));
  return PlanKind::kShared;
}

// Bytes from the first value to behind the last one. Strides are never negative in torch, and a tensor's
// numbers have passed its own checks for overflow.
int64_t extent_bytes(const at::Tensor& tensor) {
  if (tensor.numel() == 0) return 0;
  int64_t last = 0;
  for (int64_t axis = 0; axis < tensor.dim(); ++axis) last += (tensor.size(axis) - 1) * tensor.stride(axis);
  return (last + 1) * static_cast<int64_t>(tensor.element_size());
}

// Checks that there is memory behind the tensor, as plain as the kernels take it.
void check_tensor(const at::Tensor& tensor, const ArgumentName& name) {
  TORCH_CHECK(tensor.defined(), "gather_into: ", name, ": want a tensor, got none");
  TORCH_CHECK(!tensor.is_nested() && tensor.layout() == at::kStrided && tensor.has_storage() &&
                  (tensor.is_cpu() || tensor.is_cuda()) && !tensor.is_neg() && !tensor.is_conj(),
              "gather_into: ", name, ": want a plain, dense tensor on the CPU or a CUDA device, got one of ",
              tensor.key_set());
  const auto end_bytes =
      tensor.storage_offset() * static_cast<int64_t>(tensor.element_size()) + extent_bytes(tensor);
  TORCH_CHECK(end_bytes <= static_cast<int64_t>(tensor.storage().nbytes()), "gather_into: ", name,
              ": want memory for ", tensor.sizes(), ", ", end_bytes, " bytes, got a storage of ",
              tensor.storage().nbytes(), "; was it resized?");
}

// There is no derivative: a gradient that someone waits for would be lost without a word.
void check_input(const at::Tensor& tensor, const ArgumentName& name) {
  check_tensor(tensor, name);
  TORCH_CHECK(!tensor.requires_grad() || !c10::GradMode::is_enabled(), "gather_into: ", name,
              ": want a tensor without gradient, since gathering has no derivative; detach() it");
}

void check_output(const at::Tensor& tensor, const ArgumentName& name) {
  check_tensor(tensor, name);
  // As torch's own in-place operators: a view counts as its base does.
  const bool needs_grad = tensor.requires_grad() || (tensor.is_view() && tensor._base().requires_grad());
  TORCH_CHECK(!needs_grad || !c10::GradMode::is_enabled(), "gather_into: ", name,
              ": want a tensor that does not require grad, since it is overwritten; detach() it, or call "
              "under no_grad()");
  TORCH_CHECK(!tensor.is_inference() || c10::InferenceMode::is_enabled(), "gather_into: ", name,
              ": want a tensor that was not made in inference mode, or a call in inference mode");
}

void check_field(const GatherArguments& call, size_t f) {
  const at::Tensor& field = call.fields[f];
  check_input(field, in_list("fields", f));
  const auto type = field.scalar_type();
  TORCH_CHECK(type == at::kByte || type == at::kUInt16 || type == at::kFloat || type == at::kBFloat16,
              "gather_into: fields[", f, "]: want uint8, uint16, float32 or bfloat16, got ", type);
  TORCH_CHECK(field.dim() == 4 && field.size(1) > 0 && field.size(2) > 0 && field.size(3) > 0,
              "gather_into: fields[", f, "]: want [N,C,H,W] of at least one pixel, got ", field.sizes());
  TORCH_CHECK(!is_planar(field) || field.is_contiguous(), "gather_into: fields[", f,
              "]: want channels-last or contiguous, got strides ", field.strides(), " of ", field.sizes());
  TORCH_CHECK(field.size(0) == call.plan.num_samples, "gather_into: fields[", f, "]: want ",
              call.plan.num_samples, " samples, as many as labels, got ", field.size(0));
  // Kernels count a sample's values, and pixels moved by crop_pad, in 32 bits.
  constexpr int64_t kMaxValues = int64_t{1} << 30;
  int64_t values = field.size(1);
  TORCH_CHECK(!__builtin_mul_overflow(values, field.size(2), &values) &&
                  !__builtin_mul_overflow(values, field.size(3), &values) && values < kMaxValues,
              "gather_into: fields[", f, "]: want below 2^30 values per sample, got ", field.sizes());
}

void check_affine(const at::Tensor& affine, const at::Tensor& field, size_t f) {
  check_input(affine, in_list("affine", f));
  TORCH_CHECK(affine.scalar_type() == at::kFloat && affine.sizes() == at::IntArrayRef({2, field.size(1)}) &&
                  affine.is_contiguous(),
              "gather_into: affine[", f, "]: want [2,", field.size(1), "] float32, contiguous, got ",
              affine.sizes(), " ", affine.scalar_type(), " with strides ", affine.strides());
  if (!affine.is_cpu()) return;  // nobody waits for the device to see its numbers
  const float* values = affine.const_data_ptr<float>();
  for (int64_t i = 0; i < affine.numel(); ++i)
    TORCH_CHECK(std::isfinite(values[i]), "gather_into: affine[", f, "]: want finite scales and shifts, got ",
                values[i]);
}

void check_device(const at::Tensor& tensor, const ArgumentName& name, c10::Device device) {
  TORCH_CHECK(tensor.device() == device, "gather_into: ", name, ": want it on ", device, ", as out, got ",
              tensor.device());
}

// With the outputs, or in host memory that a CUDA device reads by itself.
void check_readable(const at::Tensor& tensor, const ArgumentName& name, c10::Device device) {
  TORCH_CHECK(tensor.device() == device || (device.is_cuda() && tensor.is_pinned()), "gather_into: ", name,
              ": want it on ", device, device.is_cuda() ? " or in pinned host memory" : "", ", as out, got ",
              tensor.device());
}

// Whether [n,C,H,W] with these strides is dense, in channels-last or contiguous order. Axes of size 1 have no
// stride that matters.
bool is_dense(at::IntArrayRef sizes, at::IntArrayRef strides, bool planar) {
  constexpr std::array<size_t, 4> kPlanarOrder{3, 2, 1, 0}, kChannelsLastOrder{1, 3, 2, 0};
  int64_t expected = 1;
  for (const size_t axis : planar ? kPlanarOrder : kChannelsLastOrder) {
    if (sizes[axis] != 1 && strides[axis] != expected) return false;
    expected *= sizes[axis];
  }
  return true;
}

// Outputs have the fields' sizes and layout, one type, one device.
void check_out(const GatherArguments& call, size_t index, size_t field, int64_t samples) {
  const at::Tensor& out = call.out[index];
  const at::Tensor& from = call.fields[field];
  const at::Tensor& first = call.out[0];
  const size_t lane_axes = call.stacked ? 1 : 0;
  check_output(out, in_list("out", index));
  TORCH_CHECK(
      out.scalar_type() == at::kFloat || out.scalar_type() == at::kBFloat16 || out.scalar_type() == at::kHalf,
      "gather_into: out[", index, "]: want float32, bfloat16 or float16, got ", out.scalar_type());
  TORCH_CHECK(out.scalar_type() == first.scalar_type() && out.device() == first.device(), "gather_into: out[",
              index, "]: want one type and device for all, got ", out.scalar_type(), " on ", out.device(),
              " and ", first.scalar_type(), " on ", first.device());
  TORCH_CHECK(
      out.dim() == static_cast<int64_t>(4 + lane_axes) && (!call.stacked || out.size(0) == call.num_lanes),
      "gather_into: out[", index, "]: want ", call.stacked ? "[L,B,C,H,W]" : "[b,C,H,W]", " for ",
      call.num_lanes, " lanes, got ", out.sizes());
  const at::IntArrayRef sizes = out.sizes().slice(lane_axes), strides = out.strides().slice(lane_axes);
  TORCH_CHECK(sizes[0] == samples && sizes.slice(1) == from.sizes().slice(1), "gather_into: out[", index,
              "]: want ", samples, " samples of ", from.sizes().slice(1), " a lane, got ", out.sizes());
  TORCH_CHECK(out.numel() == 0 || is_dense(sizes, strides, is_planar(from)), "gather_into: out[", index,
              "]: want the layout of fields[", field, "], got strides ", out.strides(), " of ", out.sizes());
  TORCH_CHECK(!call.stacked || call.num_lanes < 2 || out.numel() == 0 ||
                  out.stride(0) >= c10::multiply_integers(sizes),
              "gather_into: out[", index, "]: want lanes that do not overlap, got strides ", out.strides(),
              " of ", out.sizes());
}

// Labels and masks, once check_output() has passed them.
void check_small_output(const at::Tensor& tensor, const ArgumentName& name, at::ScalarType type,
                        at::IntArrayRef sizes, c10::Device device) {
  TORCH_CHECK(tensor.scalar_type() == type && tensor.sizes() == sizes && tensor.is_contiguous(),
              "gather_into: ", name, ": want ", sizes, " ", type, ", contiguous, got ", tensor.sizes(), " ",
              tensor.scalar_type(), " with strides ", tensor.strides());
  check_device(tensor, name, device);
}

// Memory that an argument holds.
struct MemoryRange {
  uintptr_t begin;
  uintptr_t end;
  ArgumentName name;
};
using MemoryRanges = c10::SmallVector<MemoryRange, 32>;

void add_range(MemoryRanges& ranges, const at::Tensor& tensor, const ArgumentName& name) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.const_data_ptr());
  const int64_t bytes = extent_bytes(tensor);
  if (bytes > 0) ranges.push_back({begin, begin + static_cast<uintptr_t>(bytes), name});
}

// Lane by lane: another argument may lie between two lanes.
void add_lanes(MemoryRanges& ranges, const at::Tensor& stacked, const ArgumentName& name) {
  for (int64_t lane = 0; lane < stacked.size(0); ++lane) add_range(ranges, stacked.select(0, lane), name);
}

enum class Detail { kTensors, kLanes };

// An output that shares memory with another argument, and that argument; {} where none does. Takes O(n log n)
// for n tensors.
std::optional<std::pair<ArgumentName, ArgumentName>> find_overlap(const GatherArguments& call,
                                                                  Detail detail) {
  MemoryRanges outputs, inputs;
  for (size_t i = 0; i < call.out.size(); ++i)
    (call.stacked && detail == Detail::kLanes ? add_lanes : add_range)(outputs, call.out[i],
                                                                       in_list("out", i));
  for (size_t i = 0; i < call.labels_out.size(); ++i)
    add_range(outputs, call.labels_out[i], in_list("labels_out", i));
  if (call.mask_out.defined()) add_range(outputs, call.mask_out, {"mask_out"});
  for (size_t f = 0; f < call.fields.size(); ++f) {
    add_range(inputs, call.fields[f], in_list("fields", f));
    add_range(inputs, call.affine[f], in_list("affine", f));
  }
  add_range(inputs, call.labels, {"labels"});
  add_range(inputs, call.lane_ids, {"lane_ids"});
  add_range(inputs, call.position, {"position"});

  std::sort(outputs.begin(), outputs.end(),
            [](const MemoryRange& a, const MemoryRange& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < outputs.size(); ++i)
    if (outputs[i].begin < outputs[i - 1].end) return {{outputs[i].name, outputs[i - 1].name}};
  // Outputs are disjoint now, so their ends ascend too.
  for (const MemoryRange& input : inputs) {
    const auto* output = std::partition_point(
        outputs.begin(), outputs.end(), [&](const MemoryRange& each) { return each.end <= input.begin; });
    if (output != outputs.end() && output->begin < input.end) return {{output->name, input.name}};
  }
  return {};
}

void check_overlap(const GatherArguments& call) {
  if (!find_overlap(call, Detail::kTensors)) return;
  const auto found = find_overlap(call, Detail::kLanes);
  TORCH_CHECK(!found, "gather_into: ", found->first, ": want memory of its own, got some of ", found->second);
}

// Checks of lane ids and position, as far as the host can see them. On a device lane_range() has the last
// word.
void check_position(const GatherArguments& call) {
  if (!call.position.is_cpu()) return;
  const int64_t* position = call.position.const_data_ptr<int64_t>();
  int64_t cursor = 0;
  TORCH_CHECK(position[0] >= 0 && position[1] >= 0 &&
                  !__builtin_mul_overflow(position[1], call.plan.stride(), &cursor),
              "gather_into: position: want an epoch and a batch of at least 0, and batch * ",
              call.plan.stride(), " below 2^63, got epoch ", position[0], ", batch ", position[1]);
}

void check_lane_ids(const GatherArguments& call) {
  if (!call.lane_ids.is_cpu()) return;
  const int64_t* lane_ids = call.lane_ids.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < call.num_lanes; ++i)
    TORCH_CHECK(has_lane(call.plan, lane_ids[i]), "gather_into: lane_ids: want 0 to ",
                call.plan.kind == PlanKind::kSplit ? static_cast<uint64_t>(call.plan.group_lanes) - 1
                                                   : kMaxOwnLanes - 1,
                ", got ", lane_ids[i], " at ", i);
}

void check_places(const GatherArguments& call) {
  const c10::Device device = call.out[0].device();
  for (size_t f = 0; f < call.fields.size(); ++f) {
    check_readable(call.fields[f], in_list("fields", f), device);
    check_device(call.affine[f], in_list("affine", f), device);
  }
  check_readable(call.labels, {"labels"}, device);
  check_device(call.lane_ids, {"lane_ids"}, device);
  if (!call.position.is_cpu()) check_device(call.position, {"position"}, device);
}

void check_stacked(const GatherArguments& call) {
  TORCH_CHECK(call.out.size() == call.fields.size(), "gather_into: out: want ", call.fields.size(),
              " stacked tensors, one per field, got ", call.out.size());
  for (size_t f = 0; f < call.fields.size(); ++f) check_out(call, f, f, call.plan.batch);
  const std::array<int64_t, 2> sizes{call.num_lanes, call.plan.batch};
  const c10::Device device = call.out[0].device();
  check_output(call.labels_out[0], {"labels_out"});
  check_small_output(call.labels_out[0], {"labels_out"}, at::kLong, sizes, device);
  if (!call.mask_out.defined()) return;
  check_output(call.mask_out, {"mask_out"});
  check_small_output(call.mask_out, {"mask_out"}, at::kBool, sizes, device);
}

void check_owned(const GatherArguments& call) {
  const size_t num_fields = call.fields.size();
  TORCH_CHECK(call.num_lanes > 0 && call.labels_out.size() == static_cast<size_t>(call.num_lanes),
              "gather_into: labels_out: want one of [L,B], or one of [b] for each of ", call.num_lanes,
              " lanes, at least 1, got ", call.labels_out.size());
  TORCH_CHECK(call.out.size() == call.labels_out.size() * num_fields, "gather_into: out: want ",
              call.labels_out.size() * num_fields, " tensors, one for each lane and field, got ",
              call.out.size());
  TORCH_CHECK(!call.mask_out.defined(),
              "gather_into: mask_out: want none for owned outputs, which have no missing samples");
  TORCH_CHECK(call.position.is_cpu(),
              "gather_into: position: want it on the CPU for owned outputs, whose sizes follow it");
  const int64_t* lane_ids = call.lane_ids.is_cpu() ? call.lane_ids.const_data_ptr<int64_t>() : nullptr;
  for (size_t lane = 0; lane < call.labels_out.size(); ++lane) {
    const at::Tensor& labels = call.labels_out[lane];
    check_output(labels, in_list("labels_out", lane));
    TORCH_CHECK(labels.dim() == 1, "gather_into: labels_out[", lane, "]: want [b], got ", labels.sizes());
    int64_t samples = labels.numel();
    if (lane_ids)
      samples = lane_range(call.plan, lane_ids[lane], call.position.const_data_ptr<int64_t>()[1]).count;
    // Lanes that the host cannot see get no more than a batch.
    samples = std::min(samples, call.plan.batch);
    for (size_t f = 0; f < num_fields; ++f) check_out(call, lane * num_fields + f, f, samples);
    check_small_output(labels, in_list("labels_out", lane), at::kLong, {samples}, call.out[0].device());
  }
}

}  // namespace

GatherArguments check_arguments(at::TensorList fields, const at::Tensor& labels, at::TensorList affine,
                                const at::Tensor& lane_ids, const at::Tensor& position, std::string_view plan,
                                bool shuffle, int64_t seed, int64_t batch, int64_t group_lanes, bool augment,
                                bool flip, int64_t crop_pad, int64_t augment_seed, at::TensorList out,
                                at::TensorList labels_out, const std::optional<at::Tensor>& mask_out) {
  check_input(labels, {"labels"});
  TORCH_CHECK(labels.scalar_type() == at::kLong && labels.dim() == 1 && labels.is_contiguous(),
              "gather_into: labels: want [N] int64, contiguous, got ", labels.sizes(), " ",
              labels.scalar_type(), " with strides ", labels.strides());
  check_input(lane_ids, {"lane_ids"});
  TORCH_CHECK(lane_ids.scalar_type() == at::kLong && lane_ids.dim() == 1 && lane_ids.is_contiguous(),
              "gather_into: lane_ids: want [L] int64, contiguous, got ", lane_ids.sizes(), " ",
              lane_ids.scalar_type(), " with strides ", lane_ids.strides());
  check_input(position, {"position"});
  TORCH_CHECK(position.scalar_type() == at::kLong && position.dim() == 1 && position.size(0) == 2 &&
                  position.is_contiguous(),
              "gather_into: position: want [2] int64 (epoch, batch), contiguous, got ", position.sizes(), " ",
              position.scalar_type(), " with strides ", position.strides());
  TORCH_CHECK(crop_pad >= 0 && crop_pad < (1 << 20), "gather_into: crop_pad: want 0 to below 2^20, got ",
              crop_pad);

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
                       .mask_out = mask_out.value_or(at::Tensor()),
                       .num_lanes = lane_ids.numel()};
  TORCH_CHECK(batch >= 1, "gather_into: batch: want at least 1, got ", batch);
  TORCH_CHECK(group_lanes >= 1, "gather_into: group_lanes: want at least 1, got ", group_lanes);
  TORCH_CHECK(fits(call.plan), "gather_into: batch: want batch * group_lanes * samples below 2^63, got ",
              batch, " * ", group_lanes, " * ", call.plan.num_samples);
  check_position(call);
  check_lane_ids(call);

  TORCH_CHECK(!fields.empty() && affine.size() == fields.size(),
              "gather_into: fields: want at least one, and as many affine, got ", fields.size(), " and ",
              affine.size());
  for (size_t f = 0; f < fields.size(); ++f) {
    check_field(call, f);
    check_affine(affine[f], fields[f], f);
  }
  TORCH_CHECK(!out.empty(), "gather_into: out: want at least one tensor, got none");
  check_tensor(out[0], in_list("out", 0));
  if (labels_out.size() == 1) check_tensor(labels_out[0], in_list("labels_out", 0));
  call.stacked = labels_out.size() == 1 && labels_out[0].dim() == 2;
  if (call.stacked) {
    check_stacked(call);
  } else {
    check_owned(call);
  }
  check_places(call);
  check_overlap(call);
  return call;
}

void mark_changed(const GatherArguments& call) {
  const auto changed = [](const at::Tensor& tensor) { tensor.unsafeGetTensorImpl()->bump_version(); };
  for (const at::Tensor& out : call.out) changed(out);
  for (const at::Tensor& labels : call.labels_out) changed(labels);
  if (call.mask_out.defined()) changed(call.mask_out);
}

}  // namespace espalier::data
