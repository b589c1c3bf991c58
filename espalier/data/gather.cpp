#include "espalier/data/gather.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <cmath>
#include <string_view>

#include "espalier/core/ignored_label.h"
#include "espalier/data/gather_arguments.h"
#include "espalier/tensor/parallel.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/data/gather_kernel.h"
#endif

namespace espalier::data {
namespace {

const char* plan_name(PlanKind kind) {
  return kind == PlanKind::kSplit ? "split" : kind == PlanKind::kOwn ? "own" : "shared";
}

// One image: convert(channel, value) for what the crop covers, black(channel) outside.
template <class In, class Out, class Convert>
void copy_image(const In* from, Out* to, const at::Tensor& field, const Displacement& moved,
                const Convert& convert, const Out* black) {
  const bool planar = is_planar(field);
  const int64_t height = field.size(2), width = field.size(3);
  const int64_t planes = planar ? field.size(1) : 1, pixel = planar ? 1 : field.size(1);
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (int64_t y = 0; y < height; ++y) {
      const int64_t from_y = y + moved.shift_y;
      const bool row_inside = from_y >= 0 && from_y < height;
      const In* row = from + (plane * height + (row_inside ? from_y : 0)) * width * pixel;
      for (int64_t x = 0; x < width; ++x) {
        const int64_t from_x = (moved.mirrored ? width - 1 - x : x) + moved.shift_x;
        const bool inside = row_inside && from_x >= 0 && from_x < width;
        for (int64_t c = 0; c < pixel; ++c, ++to)
          *to = inside ? convert(plane + c, row[from_x * pixel + c]) : black[plane + c];
      }
    }
  }
}

template <class In, class Out>
void gather_field_cpu(const GatherArguments& call, int64_t f, uint64_t epoch, int64_t batch_index) {
  const at::Tensor& field = call.fields[static_cast<size_t>(f)];
  const float* affine = call.affine[static_cast<size_t>(f)].const_data_ptr<float>();
  const int64_t channels = field.size(1), values = field.size(1) * field.size(2) * field.size(3);
  std::vector<Out> black(static_cast<size_t>(channels));
  for (int64_t c = 0; c < channels; ++c)
    black[static_cast<size_t>(c)] = static_cast<Out>(affine[channels + c]);

  // For bytes a table of all 256 values per channel: exact, and faster than computing.
  std::vector<Out> table;
  if constexpr (std::is_same_v<In, uint8_t>) {
    table.resize(static_cast<size_t>(channels) * 256);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t v = 0; v < 256; ++v)
        table[static_cast<size_t>(c * 256 + v)] =
            static_cast<Out>(std::fma(static_cast<float>(v), affine[c], affine[channels + c]));
  }
  const auto convert = [&](int64_t channel, In value) {
    if constexpr (std::is_same_v<In, uint8_t>) {
      return table[static_cast<size_t>(channel * 256 + value)];
    } else if constexpr (std::is_same_v<In, uint16_t>) {
      return static_cast<Out>(
          std::fma(static_cast<float>(value), affine[channel], affine[channels + channel]));
    } else {
      return static_cast<Out>(static_cast<float>(value));
    }
  };

  const int64_t* lane_ids = call.lane_ids.const_data_ptr<int64_t>();
  const In* from = static_cast<const In*>(field.const_data_ptr());
  const int64_t grain = std::max<int64_t>(1, kThreadValues / std::max<int64_t>(1, values));
  for (int64_t lane = 0; lane < call.num_lanes; ++lane) {
    const LaneRange range = lane_range(call.plan, lane_ids[lane], batch_index);
    const at::Tensor out = call.lane_out(lane, f);
    Out* to = static_cast<Out*>(out.mutable_data_ptr());
    parallel_for(0, out.size(0), grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (i >= range.count) {
          std::fill_n(to + i * values, values, static_cast<Out>(0.0f));
          continue;
        }
        const int64_t sample = sample_at(call.plan, lane_ids[lane], epoch, range.begin + i);
        copy_image(from + sample * values, to + i * values, field,
                   displacement(call.augmentation, epoch, sample), convert, black.data());
      }
    });
  }
}

template <class Out>
void gather_fields_cpu(const GatherArguments& call, uint64_t epoch, int64_t batch_index) {
  for (int64_t f = 0; f < static_cast<int64_t>(call.fields.size()); ++f) {
    switch (call.fields[static_cast<size_t>(f)].scalar_type()) {
      case at::kByte:
        gather_field_cpu<uint8_t, Out>(call, f, epoch, batch_index);
        break;
      case at::kUInt16:
        gather_field_cpu<uint16_t, Out>(call, f, epoch, batch_index);
        break;
      case at::kFloat:
        gather_field_cpu<float, Out>(call, f, epoch, batch_index);
        break;
      default:
        gather_field_cpu<c10::BFloat16, Out>(call, f, epoch, batch_index);
        break;
    }
  }
}

void gather_cpu(const GatherArguments& call) {
  const int64_t* position = call.position.const_data_ptr<int64_t>();
  const auto epoch = static_cast<uint64_t>(position[0]);
  const int64_t batch_index = position[1];
  switch (call.out[0].scalar_type()) {
    case at::kFloat:
      gather_fields_cpu<float>(call, epoch, batch_index);
      break;
    case at::kBFloat16:
      gather_fields_cpu<c10::BFloat16>(call, epoch, batch_index);
      break;
    case at::kHalf:
      gather_fields_cpu<c10::Half>(call, epoch, batch_index);
      break;
    default:
      TORCH_INTERNAL_ASSERT(false, "gather_into: out: ", call.out[0].scalar_type(), " passed the checks");
  }
  const int64_t* lane_ids = call.lane_ids.const_data_ptr<int64_t>();
  const int64_t* labels = call.labels.const_data_ptr<int64_t>();
  for (int64_t lane = 0; lane < call.num_lanes; ++lane) {
    const LaneRange range = lane_range(call.plan, lane_ids[lane], batch_index);
    const at::Tensor out = call.lane_labels(lane);
    int64_t* to = out.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < out.numel(); ++i) {
      const bool valid = i < range.count;
      to[i] = valid ? labels[sample_at(call.plan, lane_ids[lane], epoch, range.begin + i)] : kIgnoredLabel;
      if (call.mask_out.defined()) call.mask_out.mutable_data_ptr<bool>()[lane * call.plan.batch + i] = valid;
    }
  }
}

#if ESPALIER_WITH_CUDA
ValueType value_type(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return ValueType::kU8;
    case at::kUInt16:
      return ValueType::kU16;
    case at::kFloat:
      return ValueType::kF32;
    case at::kBFloat16:
      return ValueType::kBf16;
    default:
      TORCH_INTERNAL_ASSERT(type == at::kHalf, "gather_into: ", type, " passed the checks");
  }
  return ValueType::kF16;
}

// What a kernel counts in 32 bits, and what it keeps in shared memory.
void check_launch(const GatherArguments& call) {
  TORCH_CHECK(call.fields.size() <= kMaxFields, "gather_into: fields: want at most ", kMaxFields,
              " on CUDA, got ", call.fields.size());
  int64_t images = 0;
  TORCH_CHECK(!__builtin_mul_overflow(call.num_lanes, call.plan.batch, &images) && images <= INT32_MAX,
              "gather_into: batch: want below 2^31 images in all lanes on CUDA, got ", call.num_lanes, " * ",
              call.plan.batch);
}

void run_launch(const GatherArgs& args, const LanePointers* pointers, cudaStream_t stream) {
  const cudaError_t status = launch_gather(args, pointers, stream);
  TORCH_CHECK(status != cudaErrorInvalidConfiguration,
              "gather_into: fields: want rows that fit the device's shared memory and below 2^31 tiles of "
              "rows in all lanes; gather fewer lanes at once, or smaller images");
  C10_CUDA_CHECK(status);
}

void gather_cuda(const GatherArguments& call) {
  const c10::Device device = call.out[0].device();
  const c10::cuda::CUDAGuard guard(device);
  check_launch(call);

  GatherArgs args;
  args.num_fields = static_cast<int32_t>(call.fields.size());
  args.out_type = value_type(call.out[0].scalar_type());
  for (size_t f = 0; f < call.fields.size(); ++f) {
    const at::Tensor& field = call.fields[f];
    const bool planar = is_planar(field);
    args.fields[f] = {.values = field.const_data_ptr(),
                      .affine = call.affine[f].const_data_ptr<float>(),
                      .type = value_type(field.scalar_type()),
                      .planes = static_cast<int32_t>(planar ? field.size(1) : 1),
                      .height = static_cast<int32_t>(field.size(2)),
                      .width = static_cast<int32_t>(field.size(3)),
                      .pixel = static_cast<int32_t>(planar ? 1 : field.size(1)),
                      .out = call.stacked ? call.out[f].mutable_data_ptr() : nullptr,
                      .lane_stride = call.stacked ? call.out[f].stride(0) : 0};
  }
  args.labels = call.labels.const_data_ptr<int64_t>();
  args.lane_ids = call.lane_ids.const_data_ptr<int64_t>();
  if (call.position.is_cpu()) {
    args.epoch = call.position.const_data_ptr<int64_t>()[0];
    args.batch_index = call.position.const_data_ptr<int64_t>()[1];
  } else {
    args.position = call.position.const_data_ptr<int64_t>();
  }
  args.num_lanes = call.num_lanes;
  args.plan = call.plan;
  args.augmentation = call.augmentation;

  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index());
  if (call.stacked) {
    args.labels_out = call.labels_out[0].mutable_data_ptr<int64_t>();
    args.mask_out = call.mask_out.defined() ? call.mask_out.mutable_data_ptr<bool>() : nullptr;
    run_launch(args, nullptr, stream);
    return;
  }
  const size_t per_lane = call.fields.size() + 1;
  TORCH_CHECK(call.labels_out.size() * per_lane <= kMaxLanePointers, "gather_into: out: want at most ",
              kMaxLanePointers / per_lane, " lanes with outputs of their own, got ", call.num_lanes,
              "; use stacked outputs");
  LanePointers pointers;
  for (size_t lane = 0; lane < call.labels_out.size(); ++lane) {
    for (size_t f = 0; f < call.fields.size(); ++f)
      pointers.out[lane * per_lane + f] = call.out[lane * call.fields.size() + f].mutable_data_ptr();
    pointers.out[lane * per_lane + call.fields.size()] = call.labels_out[lane].mutable_data_ptr();
    pointers.samples[lane] = static_cast<int32_t>(call.labels_out[lane].numel());
  }
  run_launch(args, &pointers, stream);
}
#endif

void gather_into_op(at::TensorList fields, const at::Tensor& labels, at::TensorList affine,
                    const at::Tensor& lane_ids, const at::Tensor& position, c10::string_view plan,
                    bool shuffle, int64_t seed, int64_t batch, int64_t group_lanes, bool augment, bool flip,
                    int64_t crop_pad, int64_t augment_seed, at::TensorList out, at::TensorList labels_out,
                    const std::optional<at::Tensor>& mask_out) {
  const GatherArguments call =
      check_arguments(fields, labels, affine, lane_ids, position, plan, shuffle, seed, batch, group_lanes,
                      augment, flip, crop_pad, augment_seed, out, labels_out, mask_out);
#if ESPALIER_WITH_CUDA
  if (call.out[0].is_cuda()) {
    gather_cuda(call);
    return mark_changed(call);
  }
#endif
  TORCH_CHECK(call.out[0].is_cpu(),
              "gather_into: out: want it on the CPU, since this build has no CUDA, got ",
              call.out[0].device());
  gather_cpu(call);
  mark_changed(call);
}

}  // namespace

TORCH_LIBRARY(espalier, m) {
  m.def(
      "gather_into(Tensor[] fields, Tensor labels, Tensor[] affine, Tensor lane_ids, Tensor position, str "
      "plan, "
      "bool shuffle, int seed, int batch, int group_lanes, bool augment, bool flip, int crop_pad, int "
      "augment_seed, "
      "Tensor(a!)[] out, Tensor(b!)[] labels_out, Tensor(c!)? mask_out) -> ()");
}
// For every backend, so that tensors of any other kind are refused by our own sentence. (The alias leaves out
// nested ones.)
TORCH_LIBRARY_IMPL(espalier, CompositeExplicitAutograd, m) {
  m.impl("gather_into", gather_into_op);
}
TORCH_LIBRARY_IMPL(espalier, NestedTensorCPU, m) {
  m.impl("gather_into", gather_into_op);
}
TORCH_LIBRARY_IMPL(espalier, NestedTensorCUDA, m) {
  m.impl("gather_into", gather_into_op);
}
TORCH_LIBRARY_IMPL(espalier, NestedTensorMeta, m) {
  m.impl("gather_into", gather_into_op);
}
// The operator refuses what requires grad, counts versions up and looks for negated tensors by itself:
// torch's fallbacks, which box every argument, would do nothing more.
TORCH_LIBRARY_IMPL(espalier, Autograd, m) {
  m.impl("gather_into", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(espalier, Negative, m) {
  m.impl("gather_into", torch::CppFunction::makeFallthrough());
}

void gather_into(const GatherCall& call) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("espalier::gather_into", "")
                             .typed<decltype(gather_into_op)>();
  op.call(call.fields, call.labels, call.affine, call.lane_ids, call.position, plan_name(call.plan.kind),
          call.plan.shuffled, static_cast<int64_t>(call.plan.key), call.plan.batch, call.plan.group_lanes,
          call.augmentation.enabled, call.augmentation.flip, call.augmentation.crop_pad,
          static_cast<int64_t>(call.augmentation.seed), call.out, call.labels_out,
          call.mask_out.defined() ? std::optional<at::Tensor>(call.mask_out) : std::nullopt);
}

void advance_position_(const at::Tensor& position, int64_t num_batches) {
  TORCH_CHECK(position.dim() == 1 && position.size(0) == 2 && position.scalar_type() == at::kLong &&
                  position.is_contiguous(),
              "advance_position_: position: want [2] Long, dense, got ", position.sizes(), " ",
              position.scalar_type(), " with strides ", position.strides());
  TORCH_CHECK(num_batches >= 1, "advance_position_: num_batches: want at least 1, got ", num_batches);
#if ESPALIER_WITH_CUDA
  if (position.is_cuda()) {
    const c10::cuda::CUDAGuard guard(position.device());
    const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(position.device().index());
    C10_CUDA_CHECK(launch_advance(position.mutable_data_ptr<int64_t>(), num_batches, stream));
    return;
  }
#endif
  advance(position.mutable_data_ptr<int64_t>(), num_batches);
}

}  // namespace espalier::data
