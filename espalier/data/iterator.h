// The gather iterator: serves a resident dataset's batches to many environments on one or more devices.
//
// Training shuffles, drops the last partial batch and augments; evaluation does none of the three. In the
// steady state the host neither touches a pixel nor waits; a batch is one launch per device.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "espalier/data/augment.h"
#include "espalier/data/gather.h"
#include "espalier/data/plan.h"
#include "espalier/data/resident.h"
#include "espalier/data/ring.h"

namespace espalier::data {

struct IteratorOptions {
  PlanOptions plan;
  Augmentation augmentation;         // its seed is the plan's
  at::ScalarType type = at::kFloat;  // what batches are made of: f32, bf16 or f16
  int64_t ring_capacity = 3;
  std::vector<int64_t> envs = {};  // those of the plan's environments that are served here; empty: all

  static IteratorOptions training(PlanOptions plan, at::ScalarType type);
  static IteratorOptions evaluation(PlanOptions plan, at::ScalarType type);
};

// One environment's batch; its tensors are allocations of their own, and the caller's.
struct EnvBatch {
  int64_t env = 0;
  std::vector<at::Tensor> fields;  // F x [b,C,H,W] cl
  at::Tensor labels;               // [b] i64

  // Call for a batch that is consumed on another stream than the one it was made on.
  void record_stream(c10::Stream stream) const;
};

// All of a device's environments, stacked. A lease: the buffers go back to the ring when it ends.
struct StackedBatch {
  std::vector<int64_t> envs;    // [L] global indices
  std::vector<int64_t> counts;  // [L] samples that are there; the rest is masked out
  BatchRing::Lease lease;
  std::vector<at::Tensor> fields;  // F x [L,B,C,H,W]; from eval_stacked() all lanes are one memory
  at::Tensor labels;               // [L,B] i64
  at::Tensor mask;                 // [L,B] bool
};

struct IteratorState {
  uint64_t epoch = 0;
  int64_t batch = 0;  // batches taken in it
};

class GatherIterator {
 public:
  // One dataset for each of the plan's devices that this process has environments on; in any order.
  GatherIterator(const IteratorOptions& options, std::vector<std::shared_ptr<const ResidentDataset>> datasets,
                 Split split);
  ~GatherIterator();

  const GatherPlan& plan() const { return plan_; }
  int64_t length() const { return plan_.length(); }

  void begin_epoch(uint64_t epoch);

  // The next batch, or nothing at the epoch's end. Environments without samples are left out.
  std::optional<std::vector<EnvBatch>> next();
  std::optional<std::vector<StackedBatch>> next_stacked();
  // For plan `shared`: one read, broadcast to the lanes without a copy.
  std::optional<std::vector<StackedBatch>> eval_stacked();

  // For a program's own checkpoints: a restored iterator goes on with exactly the batches that would have
  // come, in O(1).
  IteratorState state() const;
  void restore(const IteratorState& state);

  // What a captured step needs to gather by itself into buffers of its own: the call for device `group`,
  // without position and outputs.
  GatherCall gather_call(size_t group) const;

 private:
  struct Group;

  Group make_group(const PlanGroup& planned,
                   const std::vector<std::shared_ptr<const ResidentDataset>>& datasets);
  void check_begun() const;
  StackedBatch produce(Group& group, int64_t batch, c10::Stream stream);
  StackedBatch take(Group& group);
  std::optional<std::vector<StackedBatch>> next_leases();
  const at::Tensor& position(int64_t batch);

  IteratorOptions options_;
  Split split_;
  GatherPlan plan_;
  std::vector<Group> groups_;
  bool begun_ = false;
  IteratorState state_;
  at::Tensor position_;  // [2] i64 cpu: epoch, batch of the call being made
};

}  // namespace espalier::data
