// The sums that an epoch leaves on the device, of all shards of a job side by side, and the one copy of
// what was read from them to the host.
//
// Kept true: what the host reads of an epoch is one copy, from the device where controllers act into pinned
// memory, behind one event; a shard on another device adds one copy between the two; lanes stand in the
// order of the job's environments, whichever shard has them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/tensor/device_table.h"
#include "espalier/train/control/controller.h"

namespace espalier::train {

// What an epoch left on the device, of all lanes of the job.
struct EpochSums {
  at::Tensor trained;           // [rows,L] f64: StepMetrics::sums()
  at::Tensor validated;         // [1 + S,3,L] f64: Evaluation::sums()
  at::Tensor states;            // [L,S,sizeof(SlotState)] u8: in the epoch
  at::Tensor added_parameters;  // [L] f32: what grew, as a share of the host's
  at::Tensor num_batches;       // [L] f32: that `trained` is of
  at::Tensor op;                // [L] i64: of the decision before the epoch
  at::Tensor retired;           // [L] bool: given up before the epoch
  Telemetry telemetry = Telemetry::kAll;
  bool is_validated = true;  // else `validated` is zeros
};

class EpochBuffer {
 public:
  // envs: of each shard, the environment that each of its lanes is. device: where controllers act.
  // num_lanes: L, of the job; where the shards here have fewer, others have the rest (set_remote()).
  EpochBuffer(std::vector<std::vector<int64_t>> envs, int64_t num_slots, at::Device device,
              std::optional<int64_t> num_lanes = std::nullopt);

  // What the host knows of one lane before the epoch. Then upload().
  struct LaneFacts {
    std::span<const SlotState> states;  // [S]
    double added_parameters = 0;        // as a share of the host's
    int64_t num_batches = 0;
    bool is_retired = false;
  };
  void set_lane(int64_t env, const LaneFacts& lane);
  void set_op(int64_t env, SeedOp op);  // by the decision before
  void upload() { table_.upload(); }

  // What the process that has a lane knows of it, told to the one where controllers act.
  struct RemoteLane {
    int64_t env = 0;
    std::vector<SlotState> states;  // [S]
    float added_parameters = 0;
    float num_batches = 0;
    bool is_retired = false;
    std::vector<double> sums;  // [rows] of packed()
  };
  RemoteLane entry_of(int64_t env, std::span<const double> sums) const;
  void set_remote(const std::vector<RemoteLane>& lanes);  // then upload()
  // [rows,L] f64 device: all that collect() brought.
  const at::Tensor& packed() const { return packed_; }

  // For one shard, once its epoch is queued: sums as StepMetrics and Evaluation have them.
  void collect(size_t shard, const at::Tensor& trained, const at::Tensor& validated);
  // For all of them, once they are collected.
  EpochSums sums(Telemetry telemetry = Telemetry::kAll) const;

  // The one copy: what was read, and what a controller adds to it: [R,L] f64 on the device each; the second
  // may be undefined. Waits for it.
  void read(const at::Tensor& rows, const at::Tensor& carried);
  // One lane's column of it on the host.
  std::vector<double> column_of(int64_t env) const;

  int64_t num_lanes() const { return packed_.size(1); }

 private:
  EpochBuffer(const std::vector<std::vector<int64_t>>& envs, int64_t num_lanes, int64_t num_slots,
              at::Device device);

  std::vector<at::Tensor> envs_;  // per shard, [its lanes] i64 device
  int64_t num_slots_;
  int64_t trained_rows_;
  int64_t validated_rows_;
  DeviceTable table_;
  DeviceTable::Column<uint8_t> states_;   // [L * S * sizeof(SlotState)]
  DeviceTable::Column<float> added_;      // [L]
  DeviceTable::Column<float> batches_;    // [L]
  DeviceTable::Column<int64_t> ops_;      // [L]
  DeviceTable::Column<uint8_t> retired_;  // [L]
  at::Tensor packed_;                     // [rows,L] f64 device
  at::Tensor host_;                       // [R,L] f64, pinned where the device is not the CPU
  std::optional<c10::Event> is_copied_;   // none on the CPU
};

}  // namespace espalier::train
