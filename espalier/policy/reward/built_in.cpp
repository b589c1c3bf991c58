#include "espalier/policy/reward/built_in.h"

#include <ATen/ops/zeros.h>

#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/policy/reward/kernel.h"
#endif

namespace espalier::policy {
namespace {

bool pays_contributions(RewardMode mode) {
  return mode == RewardMode::kContribution || mode == RewardMode::kEscrow;
}

template <RewardMode kMode>
std::unique_ptr<RewardRule> make(const RewardFrame& frame) {
  return std::make_unique<BuiltInReward>(kMode, frame);
}

}  // namespace

Registry<RewardKind>& rewards() {
  static Registry<RewardKind> rewards(
      "reward",
      {{"shaped", "every step by what it changed, and the end", make<RewardMode::kShaped>},
       {"sparse", "the end alone", make<RewardMode::kSparse>},
       {"contribution", "every seed by what it contributes, step by step", make<RewardMode::kContribution>},
       {"escrow", "contributions too, taken back where they do not last", make<RewardMode::kEscrow>}});
  return rewards;
}

BuiltInReward::BuiltInReward(RewardMode mode, const RewardFrame& frame) : mode_(mode), frame_(frame) {
  if (pays_contributions(mode))
    credit_ = at::zeros({frame.lanes, frame.slots}, at::TensorOptions(frame.device).dtype(at::kFloat));
}

std::vector<std::string> BuiltInReward::terms() const {
  return {kRewardTermNames, kRewardTermNames + num_terms(mode_)};
}

void BuiltInReward::begin() {
  if (credit_.defined()) credit_.zero_();
}

std::vector<NamedTensor> BuiltInReward::state() const {
  if (!credit_.defined()) return {};
  return {{"credit", credit_}};
}

void BuiltInReward::compute(const RewardInput& input, const at::Tensor& terms) {
  const RewardArgs args{.accuracy_before = input.accuracy_before.const_data_ptr<float>(),
                        .accuracy_before_stride = input.accuracy_before.stride(0),
                        .lane_readings = input.after.lanes.const_data_ptr<float>(),
                        .slot_readings = input.after.slots.const_data_ptr<float>(),
                        .contributions = input.contributions.const_data_ptr<float>(),
                        .op = input.op.const_data_ptr<int64_t>(),
                        .op_stride = input.op.stride(0),
                        .states_before = input.states_before.const_data_ptr<uint8_t>(),
                        .states_after = input.after.states.const_data_ptr<uint8_t>(),
                        .is_last = input.is_last.const_data_ptr<bool>(),
                        .failed = input.failed.const_data_ptr<bool>(),
                        .frozen = input.frozen.const_data_ptr<bool>(),
                        .goes_on = input.goes_on,
                        .lanes = frame_.lanes,
                        .slots = frame_.slots,
                        .mode = mode_,
                        .weights = frame_.weights,
                        .gamma = static_cast<float>(frame_.gamma),
                        .credit = credit_.defined() ? credit_.mutable_data_ptr<float>() : nullptr,
                        .terms = terms.mutable_data_ptr<float>()};
#if ESPALIER_WITH_CUDA
  if (const at::Device device = input.failed.device(); device.is_cuda()) {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(launch_reward(args, c10::cuda::getCurrentCUDAStream(device.index()).stream()));
    return;
  }
#endif
  for (int64_t lane = 0; lane < frame_.lanes; ++lane) reward_lane(args, lane);
}

}  // namespace espalier::policy
