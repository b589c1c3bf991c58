#include "espalier/policy/observe/observation.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <limits>

#include "espalier/policy/check_tensor.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/policy/observe/kernel.h"
#endif

namespace espalier::policy {

RawObservation empty_raw_observation(const ObserverOptions& options) {
  const int64_t lanes = options.lanes, slots = options.space.num_slots;
  const at::TensorOptions on = at::TensorOptions(options.device);
  // One empty slot's bytes, and all others copies of it.
  const SlotState empty;
  const at::Tensor bytes = at::empty({kSlotStateBytes}, at::kByte);
  std::memcpy(bytes.mutable_data_ptr<uint8_t>(), &empty, sizeof(empty));
  return {.lanes = at::zeros({lanes, kNumLaneReadings}, on.dtype(at::kFloat)),
          .slots = at::full({lanes, slots, kNumSlotReadings}, std::numeric_limits<double>::quiet_NaN(),
                            on.dtype(at::kFloat)),
          .states = bytes.to(options.device)
                        .expand({lanes, slots, kSlotStateBytes})
                        .clone(at::MemoryFormat::Contiguous)};
}

at::Tensor holds_seed(const at::Tensor& states) {
  static_assert(offsetof(SlotState, stage) == 0);
  const at::Tensor stage = states.select(2, 0);
  return stage.ge(static_cast<int64_t>(SeedStage::kGerminated))
      .logical_and(stage.le(static_cast<int64_t>(SeedStage::kFossilized)));
}

at::Tensor is_undecided(const at::Tensor& states) {
  static_assert(offsetof(SlotState, amplitude) % sizeof(float) == 0);
  const at::Tensor amplitude =
      states.view(at::kFloat).select(2, offsetof(SlotState, amplitude) / sizeof(float));
  return holds_seed(states)
      .logical_and(amplitude.gt(0))
      .logical_and(states.select(2, 0).ne(static_cast<int64_t>(SeedStage::kFossilized)));
}

Observer::Observer(const ObserverOptions& options) : options_(options) {
  const int64_t lanes = options.lanes, slots = options.space.num_slots;
  TORCH_CHECK(lanes >= 1 && slots >= 1 && options.episode_length >= 1,
              "Observer: lanes, num_slots, episode_length: want 1 or more, got ", lanes, ", ", slots, ", ",
              options.episode_length);
  const at::TensorOptions floats = at::TensorOptions(options.device).dtype(at::kFloat);
  const at::TensorOptions numbers = floats.dtype(at::kLong);
  seen_ = {.features = at::zeros({lanes, num_features(slots)}, floats),
           .blueprints = at::full({lanes, slots}, int64_t{kNoBlueprint}, numbers)};
  fields_ = {.stage = at::zeros({lanes, slots}, numbers),
             .flags = at::zeros({lanes, slots}, numbers),
             .age_steps = at::zeros({lanes, slots}, numbers),
             .num_seeds = at::zeros({lanes}, numbers)};
  lane_memory_ = at::zeros({lanes, kNumLaneMemory}, floats);
  contributions_ = at::full({lanes, slots}, std::numeric_limits<double>::quiet_NaN(), floats);
  measured_ago_ = at::zeros({lanes, slots}, numbers);
}

void Observer::observe(const RawObservation& readings, const at::Tensor& last_op, const at::Tensor& step,
                       const at::Tensor& clears) {
  const int64_t lanes = options_.lanes, slots = options_.space.num_slots;
  const TensorChecker check("observe", options_.device);
  check.dense(readings.lanes, "lanes", {lanes, kNumLaneReadings}, at::kFloat);
  check.dense(readings.slots, "slots", {lanes, slots, kNumSlotReadings}, at::kFloat);
  check.dense(readings.states, "states", {lanes, slots, kSlotStateBytes}, at::kByte);
  check.shape(last_op, "last_op", {lanes}, at::kLong);
  check.dense(step, "step", {1}, at::kLong);
  check.dense(clears, "clears", {lanes}, at::kBool);
  const ObserveArgs args{.lane_readings = readings.lanes.const_data_ptr<float>(),
                         .slot_readings = readings.slots.const_data_ptr<float>(),
                         .states = readings.states.const_data_ptr<uint8_t>(),
                         .last_op = last_op.const_data_ptr<int64_t>(),
                         .last_op_stride = last_op.stride(0),
                         .step = step.const_data_ptr<int64_t>(),
                         .clears = clears.const_data_ptr<bool>(),
                         .lanes = lanes,
                         .slots = slots,
                         .num_blueprints = options_.space.num_blueprints,
                         .episode_length = options_.episode_length,
                         .least_healthy_norm = static_cast<float>(options_.least_healthy_norm),
                         .largest_healthy_norm = static_cast<float>(options_.largest_healthy_norm),
                         .lane_memory = lane_memory_.mutable_data_ptr<float>(),
                         .contributions = contributions_.mutable_data_ptr<float>(),
                         .measured_ago = measured_ago_.mutable_data_ptr<int64_t>(),
                         .features = seen_.features.mutable_data_ptr<float>(),
                         .blueprints = seen_.blueprints.mutable_data_ptr<int64_t>(),
                         .stage = fields_.stage.mutable_data_ptr<int64_t>(),
                         .flags = fields_.flags.mutable_data_ptr<int64_t>(),
                         .age_steps = fields_.age_steps.mutable_data_ptr<int64_t>(),
                         .num_seeds = fields_.num_seeds.mutable_data_ptr<int64_t>()};
#if ESPALIER_WITH_CUDA
  if (const at::Device device = readings.lanes.device(); device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(launch_observe(args, c10::cuda::getCurrentCUDAStream(device.index()).stream()));
    return;
  }
#endif
  for (int64_t lane = 0; lane < lanes; ++lane) {
    observe_lane(args, lane);
    for (int64_t slot = 0; slot < slots; ++slot) observe_slot(args, lane, slot);
  }
}

std::vector<NamedTensor> Observer::state() const {
  return {{"observer.lanes", lane_memory_},
          {"observer.contributions", contributions_},
          {"observer.measured_ago", measured_ago_}};
}

}  // namespace espalier::policy
