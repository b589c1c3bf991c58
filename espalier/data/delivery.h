// The batches of a step, at addresses that never change, so that a captured step reads them wherever the data
// lives.
//
// - Data on the device: the step itself gathers, at a position on the device which it moves on;
//   nothing else is done.
// - Data in host memory: a ring of batches is filled ahead on a stream of its own, where the gather reads
//   pinned memory over the bus while earlier steps compute.
//   Before a step its batch is copied from the ring
//   to the fixed address.
// Either way a step sees the same bits, and the position on the device says which batch comes next.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "espalier/data/gather.h"
#include "espalier/data/ring.h"
#include "espalier/tensor/layout.h"

namespace espalier::data {

// Batches of a ring: one that is being read, one that is there, one that is being made.
inline constexpr int64_t kRingBatches = 3;

enum class Ahead {
  kFromHostMemory,  // batches are made ahead where the data is in host memory and the step is not
  kAlways,          // everywhere: so the CPU too can be seen to give the same batches
};

struct DeliveryOptions {
  std::vector<size_t> fields;  // which of the data's
  int64_t lanes = 1;           // that the buffers have
  int64_t num_batches = 1;     // in an epoch; the one after the last is the next epoch's first
  at::ScalarType type = at::kFloat;
  MemoryFormat format = MemoryFormat::kChannelsLast;
  Ahead ahead = Ahead::kFromHostMemory;
  // Where several processes share out every batch: the call's plan is that of one part, and batch b is its
  // batch b * num_parts + part, so that all parts together are the batch of one process.
  int64_t num_parts = 1;
  int64_t part = 0;
};

class BatchDelivery {
 public:
  // call: GatherIterator::gather_call().
  BatchDelivery(GatherCall call, const DeliveryOptions& options);

  // The next batch is this one of the epoch. end: none is asked for from there on, until the next move, so
  // none is made ahead; none: batches go on into the next epoch.
  void move_to(int64_t epoch, int64_t batch = 0, std::optional<int64_t> end = {});
  // After position() was loaded from a checkpoint. Reads it on the host where batches are made ahead.
  void sync_position();

  // Before every step, outside of what is captured.
  void prepare();
  // At the step's beginning, and at its end: part of what is captured. After an epoch's last batch comes the
  // next one's first.
  void deliver();
  void advance();

  at::Device device() const { return labels_.device(); }
  const std::vector<at::Tensor>& images() const { return images_; }  // F x [L,B,C,H,W]
  const at::Tensor& labels() const { return labels_; }      // [L,B] i64; -100 where there is no sample
  const at::Tensor& position() const { return position_; }  // [2] i64 device: epoch, batch of all parts
  const std::vector<at::Tensor>& affine() const { return call_.affine; }  // F x [2,C] f32, see gather.h

 private:
  struct BatchIndex {
    int64_t epoch = 0;
    int64_t batch = 0;
    bool operator==(const BatchIndex&) const = default;
  };
  struct Made {
    BatchIndex place;
    BatchRing::Lease lease;
  };

  BatchIndex after(BatchIndex place) const;
  int64_t planned(int64_t batch) const { return batch * num_parts_ + part_; }
  void make_next();

  GatherCall call_;  // into the fixed buffers
  int64_t num_batches_;
  int64_t num_parts_;
  int64_t part_;
  std::vector<at::Tensor> images_;
  at::Tensor labels_;
  at::Tensor position_;
  at::Tensor
      planned_position_;  // [2] i64 device: as the plan counts; position_ itself where there is one part
  // Where batches are made ahead.
  std::unique_ptr<BatchRing> ring_;
  std::optional<c10::Stream> stream_;  // that they are made on; none on the CPU
  std::deque<Made> made_;              // oldest first
  BatchIndex place_;                   // the batch that prepare() delivers next
  BatchIndex next_;                    // the batch to make next
  std::optional<BatchIndex> end_;      // the first one that is not to be made ahead
};

}  // namespace espalier::data
