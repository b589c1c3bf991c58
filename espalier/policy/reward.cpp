#include "espalier/policy/reward.h"

#include <ATen/ops/zeros.h>

#include "espalier/policy/check_tensor.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/policy/reward_kernel.h"
#endif

namespace espalier::policy {

Reward::Reward(int64_t lanes, int64_t slots, const RewardOptions& options, at::Device device)
    : lanes_(lanes), slots_(slots), options_(options), device_(device) {
  TORCH_CHECK(lanes >= 1 && slots >= 1, "Reward: lanes, slots: want 1 or more, got ", lanes, ", ", slots);
  TORCH_CHECK(options.gamma >= 0 && options.gamma <= 1, "Reward: gamma: want 0 to 1, got ", options.gamma);
  const at::TensorOptions floats = at::TensorOptions(device).dtype(at::kFloat);
  reward_ = at::zeros({lanes}, floats);
  terms_ = at::zeros({lanes, kNumRewardTerms}, floats);
  ended_ = at::zeros({lanes}, floats.dtype(at::kBool));
  counts_ = at::zeros({lanes}, floats.dtype(at::kBool));
}

void Reward::compute(const RewardInput& input) {
  const TensorChecker check("reward", device_);
  check.shape(input.accuracy_before, "accuracy_before", {lanes_}, at::kFloat);
  check.dense(input.states_before, "states_before", {lanes_, slots_, kSlotStateBytes}, at::kByte);
  check.dense(input.after.lanes, "after.lanes", {lanes_, kNumLaneSigns}, at::kFloat);
  check.dense(input.after.slots, "after.slots", {lanes_, slots_, kNumSlotSigns}, at::kFloat);
  check.dense(input.after.states, "after.states", {lanes_, slots_, kSlotStateBytes}, at::kByte);
  check.dense(input.contributions, "contributions", {lanes_, slots_}, at::kFloat);
  check.shape(input.op, "op", {lanes_}, at::kLong);
  check.dense(input.is_last, "is_last", {1}, at::kBool);
  check.dense(input.failed, "failed", {lanes_}, at::kBool);
  check.dense(input.frozen, "frozen", {lanes_}, at::kBool);
  const RewardArgs args{.accuracy_before = input.accuracy_before.const_data_ptr<float>(),
                        .accuracy_before_stride = input.accuracy_before.stride(0),
                        .lane_signs = input.after.lanes.const_data_ptr<float>(),
                        .slot_signs = input.after.slots.const_data_ptr<float>(),
                        .contributions = input.contributions.const_data_ptr<float>(),
                        .op = input.op.const_data_ptr<int64_t>(),
                        .op_stride = input.op.stride(0),
                        .states_before = input.states_before.const_data_ptr<uint8_t>(),
                        .states_after = input.after.states.const_data_ptr<uint8_t>(),
                        .is_last = input.is_last.const_data_ptr<bool>(),
                        .failed = input.failed.const_data_ptr<bool>(),
                        .frozen = input.frozen.const_data_ptr<bool>(),
                        .lanes = lanes_,
                        .slots = slots_,
                        .mode = options_.mode,
                        .gamma = static_cast<float>(options_.gamma),
                        .reward = reward_.mutable_data_ptr<float>(),
                        .terms = terms_.mutable_data_ptr<float>(),
                        .ended = ended_.mutable_data_ptr<bool>(),
                        .counts = counts_.mutable_data_ptr<bool>()};
#if ESPALIER_WITH_CUDA
  if (const at::Device device = input.failed.device(); device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(launch_reward(args, c10::cuda::getCurrentCUDAStream(device.index()).stream()));
    return;
  }
#endif
  for (int64_t lane = 0; lane < lanes_; ++lane) reward_lane(args, lane);
}

}  // namespace espalier::policy
