#include "espalier/train/population/epoch_buffer.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <cstring>

#include "espalier/core/error.h"
#include "espalier/data/ring.h"
#include "espalier/tensor/device.h"
#include "espalier/train/step/metrics.h"

namespace espalier::train {
namespace {

int64_t count(const std::vector<std::vector<int64_t>>& envs) {
  int64_t lanes = 0;
  for (const auto& lane_envs : envs) lanes += std::ssize(lane_envs);
  return lanes;
}

int64_t table_bytes(int64_t lanes, int64_t slots) {
  return DeviceTable::bytes_of<uint8_t>(lanes * slots * static_cast<int64_t>(sizeof(SlotState))) +
         2 * DeviceTable::bytes_of<float>(lanes) + DeviceTable::bytes_of<int64_t>(lanes) +
         DeviceTable::bytes_of<uint8_t>(lanes);
}

}  // namespace

EpochBuffer::EpochBuffer(std::vector<std::vector<int64_t>> envs, int64_t num_slots, at::Device device,
                         std::optional<int64_t> num_lanes)
    : EpochBuffer(envs, num_lanes.value_or(count(envs)), num_slots, device) {}

EpochBuffer::EpochBuffer(const std::vector<std::vector<int64_t>>& envs, int64_t num_lanes, int64_t num_slots,
                         at::Device device)
    : num_slots_(num_slots),
      trained_rows_(StepMetrics::num_rows(num_slots)),
      validated_rows_(3 * (1 + num_slots)),
      table_(table_bytes(num_lanes, num_slots), device),
      states_(table_.add<uint8_t>(num_lanes * num_slots * static_cast<int64_t>(sizeof(SlotState)))),
      added_(table_.add<float>(num_lanes)),
      batches_(table_.add<float>(num_lanes)),
      ops_(table_.add<int64_t>(num_lanes)),
      retired_(table_.add<uint8_t>(num_lanes)),
      packed_(at::zeros({trained_rows_ + validated_rows_, num_lanes},
                        at::TensorOptions(at::kDouble).device(device))) {
  for (const auto& of_shard : envs) envs_.push_back(at::tensor(of_shard, at::kLong).to(device));
  if (!device.is_cpu()) is_copied_.emplace(device.type());
}

void EpochBuffer::set_lane(int64_t env, const LaneFacts& lane) {
  uint8_t* const to = states_.host.data() + static_cast<size_t>(env) * lane.states.size_bytes();
  std::memcpy(to, lane.states.data(), lane.states.size_bytes());
  added_.host[static_cast<size_t>(env)] = static_cast<float>(lane.added_parameters);
  batches_.host[static_cast<size_t>(env)] = static_cast<float>(lane.num_batches);
  retired_.host[static_cast<size_t>(env)] = lane.is_retired ? 1 : 0;
}

void EpochBuffer::set_op(int64_t env, SeedOp op) {
  ops_.host[static_cast<size_t>(env)] = static_cast<int64_t>(op);
}

EpochBuffer::RemoteLane EpochBuffer::entry_of(int64_t env, std::span<const double> sums) const {
  RemoteLane entry{.env = env,
                   .states = std::vector<SlotState>(static_cast<size_t>(num_slots_)),
                   .added_parameters = added_.host[static_cast<size_t>(env)],
                   .num_batches = batches_.host[static_cast<size_t>(env)],
                   .is_retired = retired_.host[static_cast<size_t>(env)] != 0,
                   .sums = {sums.begin(), sums.end()}};
  const size_t bytes = entry.states.size() * sizeof(SlotState);
  std::memcpy(entry.states.data(), states_.host.data() + static_cast<size_t>(env) * bytes, bytes);
  return entry;
}

void EpochBuffer::set_remote(const std::vector<RemoteLane>& lanes) {
  if (lanes.empty()) return;
  std::vector<int64_t> envs;
  const at::Tensor sums = at::empty({packed_.size(0), std::ssize(lanes)}, at::kDouble);
  auto rows = sums.accessor<double, 2>();
  for (size_t i = 0; i < lanes.size(); ++i) {
    const RemoteLane& lane = lanes[i];
    if (std::ssize(lane.sums) != packed_.size(0) || std::ssize(lane.states) != num_slots_ || lane.env < 0 ||
        lane.env >= num_lanes())
      fail("lane {}: what its rank told of it is of another job; start all ranks with the same flags",
           lane.env);
    envs.push_back(lane.env);
    const size_t bytes = lane.states.size() * sizeof(SlotState);
    std::memcpy(states_.host.data() + static_cast<size_t>(lane.env) * bytes, lane.states.data(), bytes);
    added_.host[static_cast<size_t>(lane.env)] = lane.added_parameters;
    batches_.host[static_cast<size_t>(lane.env)] = lane.num_batches;
    retired_.host[static_cast<size_t>(lane.env)] = lane.is_retired ? 1 : 0;
    for (size_t row = 0; row < lane.sums.size(); ++row)
      rows[static_cast<int64_t>(row)][static_cast<int64_t>(i)] = lane.sums[row];
  }
  packed_.index_copy_(1, at::tensor(envs, at::kLong).to(packed_.device()), sums.to(packed_.device()));
}

void EpochBuffer::collect(size_t shard, const at::Tensor& trained, const at::Tensor& validated) {
  const std::vector<at::Tensor> parts{trained, validated.flatten(0, 1)};
  if (envs_.size() == 1 && envs_[0].numel() == num_lanes()) {  // its lanes are the job's, in their order
    at::cat_out(packed_, parts);
    return;
  }
  packed_.index_copy_(1, envs_[shard], at::cat(parts).to(packed_.device(), /*non_blocking=*/true));
}

EpochSums EpochBuffer::sums(Telemetry telemetry) const {
  return {.trained = packed_.narrow(0, 0, trained_rows_),
          .validated = packed_.narrow(0, trained_rows_, validated_rows_).unflatten(0, {1 + num_slots_, 3}),
          .states = states_.device.view({num_lanes(), num_slots_, static_cast<int64_t>(sizeof(SlotState))}),
          .added_parameters = added_.device,
          .num_batches = batches_.device,
          .op = ops_.device,
          .retired = retired_.device.view(at::kBool),
          .telemetry = telemetry};
}

void EpochBuffer::read(const at::Tensor& rows, const at::Tensor& carried) {
  RECORD_USER_SCOPE("copy of the epoch");
  const at::Tensor all = carried.defined() ? at::cat({rows, carried}) : rows;
  if (!is_copied_) {
    host_ = all;
    return;
  }
  if (!host_.defined() || host_.sizes() != all.sizes())
    host_ = at::empty(all.sizes(), at::TensorOptions(at::kDouble).pinned_memory(true));
  host_.copy_(all, /*non_blocking=*/true);
  is_copied_->record(current_stream(packed_.device()));
  is_copied_->synchronize();
}

std::vector<double> EpochBuffer::column_of(int64_t env) const {
  const auto rows = host_.accessor<double, 2>();
  std::vector<double> column;
  for (int64_t row = 0; row < rows.size(0); ++row) column.push_back(rows[row][env]);
  return column;
}

}  // namespace espalier::train
