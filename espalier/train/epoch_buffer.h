// The sums that an epoch leaves on the device, of all populations of a job side by side, and their one copy
// to the host.
//
// Kept true: what the host reads of an epoch is one copy, from the device where controllers act into pinned
// memory, behind one event; a population on another device adds one copy between the two; lanes stand in the
// order of the job's environments, whichever population has them.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/device_table.h"
#include "espalier/train/controller.h"

namespace espalier::train {

class EpochBuffer {
 public:
  // envs: of each population, the environment that each of its lanes is; together 0 to L - 1. device: where
  // controllers act.
  EpochBuffer(std::vector<std::vector<int64_t>> envs, int64_t num_slots, at::Device device);

  // Of one lane: what the host knows before the epoch, for controllers that act on the device. Then upload().
  void set_lane(int64_t env, std::span<const SlotState> states, double added_parameters);
  void upload() { table_.upload(); }

  // Of one population, once its epoch is queued: sums as StepMetrics and Evaluation have them.
  void collect(size_t population, const at::Tensor& trained, const at::Tensor& validated);
  // Of all of them, once they are collected.
  EpochSigns signs(int64_t num_batches, Telemetry telemetry = Telemetry::kAll) const;

  // The one copy, with what a controller adds to it: [R,L] f64 on the device, or undefined. Waits for it.
  void read(const at::Tensor& carried);

  // Of what was read, until the next collect(). On the host.
  struct Sums {
    at::Tensor trained;    // [rows,Lp] f64
    at::Tensor validated;  // [1 + S,3,Lp] f64
  };
  Sums sums_of(size_t population) const;
  std::vector<double> carried_by(int64_t env) const;

  int64_t num_lanes() const { return packed_.size(1); }
  int64_t num_reads() const { return num_reads_; }

 private:
  at::Tensor validated_in(const at::Tensor& packed) const;  // view [1 + S,3,...]

  std::vector<at::Tensor> envs_;            // of each population, [Lp] i64 cpu
  std::vector<at::Tensor> envs_on_device_;  // the same there
  int64_t num_slots_;
  int64_t trained_rows_;
  int64_t validated_rows_;
  grow::DeviceTable table_;
  grow::DeviceTable::Column<uint8_t> states_;  // [L * S * sizeof(SlotState)]
  grow::DeviceTable::Column<float> added_;     // [L]
  at::Tensor packed_;                          // [rows,L] f64 device
  at::Tensor host_;                            // [rows + R,L] f64, pinned where the device is not the CPU
  std::optional<c10::Event> is_copied_;        // none on the CPU
  int64_t num_reads_ = 0;
};

}  // namespace espalier::train
