#include "espalier/train/epoch_buffer.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>

#include <cstring>

#include "espalier/data/ring.h"
#include "espalier/train/step_metrics.h"

namespace espalier::train {
namespace {

int64_t count(const std::vector<std::vector<int64_t>>& envs) {
  int64_t lanes = 0;
  for (const auto& of_population : envs) lanes += std::ssize(of_population);
  return lanes;
}

int64_t table_bytes(int64_t lanes, int64_t slots) {
  return grow::DeviceTable::bytes_of<uint8_t>(lanes * slots * static_cast<int64_t>(sizeof(SlotState))) +
         grow::DeviceTable::bytes_of<float>(lanes);
}

}  // namespace

EpochBuffer::EpochBuffer(std::vector<std::vector<int64_t>> envs, int64_t num_slots, at::Device device)
    : num_slots_(num_slots),
      trained_rows_(StepMetrics::num_rows(num_slots)),
      validated_rows_(3 * (1 + num_slots)),
      table_(table_bytes(count(envs), num_slots), device),
      states_(table_.add<uint8_t>(count(envs) * num_slots * static_cast<int64_t>(sizeof(SlotState)))),
      added_(table_.add<float>(count(envs))),
      packed_(at::zeros({trained_rows_ + validated_rows_, count(envs)},
                        at::TensorOptions(at::kDouble).device(device))) {
  for (const auto& of_population : envs) {
    envs_.push_back(at::tensor(of_population, at::kLong));
    envs_on_device_.push_back(envs_.back().to(device));
  }
  if (!device.is_cpu()) is_copied_.emplace(device.type());
}

void EpochBuffer::set_lane(int64_t env, std::span<const SlotState> states, double added_parameters) {
  uint8_t* const to = states_.host.data() + static_cast<size_t>(env) * states.size_bytes();
  std::memcpy(to, states.data(), states.size_bytes());
  added_.host[static_cast<size_t>(env)] = static_cast<float>(added_parameters);
}

void EpochBuffer::collect(size_t population, const at::Tensor& trained, const at::Tensor& validated) {
  const std::vector<at::Tensor> parts{trained, validated.flatten(0, 1)};
  if (envs_.size() == 1) {  // its lanes are the job's, in their order
    at::cat_out(packed_, parts);
    return;
  }
  packed_.index_copy_(1, envs_on_device_[population],
                      at::cat(parts).to(packed_.device(), /*non_blocking=*/true));
}

at::Tensor EpochBuffer::validated_in(const at::Tensor& packed) const {
  return packed.narrow(0, trained_rows_, validated_rows_).unflatten(0, {1 + num_slots_, 3});
}

EpochSigns EpochBuffer::signs(int64_t num_batches, Telemetry telemetry) const {
  return {.trained = packed_.narrow(0, 0, trained_rows_),
          .validated = validated_in(packed_),
          .states = states_.device.view({num_lanes(), num_slots_, static_cast<int64_t>(sizeof(SlotState))}),
          .added_parameters = added_.device,
          .num_batches = num_batches,
          .telemetry = telemetry};
}

void EpochBuffer::read(const at::Tensor& carried) {
  RECORD_USER_SCOPE("copy of the epoch");
  num_reads_ += 1;
  const at::Tensor all = carried.defined() ? at::cat({packed_, carried}) : packed_;
  if (!is_copied_) {
    host_ = all;
    return;
  }
  if (!host_.defined() || host_.sizes() != all.sizes())
    host_ = at::empty(all.sizes(), at::TensorOptions(at::kDouble).pinned_memory(true));
  host_.copy_(all, /*non_blocking=*/true);
  is_copied_->record(data::current_stream(packed_.device()));
  is_copied_->synchronize();
}

EpochBuffer::Sums EpochBuffer::sums_of(size_t population) const {
  const at::Tensor lanes = envs_.size() == 1 ? host_ : host_.index_select(1, envs_[population]);
  return {.trained = lanes.narrow(0, 0, trained_rows_), .validated = validated_in(lanes)};
}

std::vector<double> EpochBuffer::carried_by(int64_t env) const {
  const auto rows = host_.accessor<double, 2>();
  std::vector<double> carried;
  for (int64_t row = packed_.size(0); row < rows.size(0); ++row) carried.push_back(rows[row][env]);
  return carried;
}

}  // namespace espalier::train
