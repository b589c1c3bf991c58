#include "espalier/data/delivery.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "espalier/core/error.h"
#include "espalier/tensor/device.h"

namespace espalier::data {

BatchDelivery::BatchDelivery(GatherCall call, const DeliveryOptions& options)
    : call_(std::move(call)),
      num_batches_(options.num_batches),
      num_parts_(options.num_parts),
      part_(options.part) {
  std::vector<at::Tensor> stored, affine;
  for (const size_t field : options.fields) {
    stored.push_back(call_.fields.at(field));
    affine.push_back(call_.affine.at(field));
  }
  call_.fields = stored;
  call_.affine = affine;
  if (call_.lane_ids.size(0) < options.lanes)
    fail_usage("step: the plan serves {} lanes of {}", call_.lane_ids.size(0), options.lanes);
  call_.lane_ids = call_.lane_ids.narrow(0, 0, options.lanes);
  const at::TensorOptions device(call_.lane_ids.device());
  const int64_t batch = call_.plan.batch;
  for (const at::Tensor& each : stored)
    images_.push_back(empty_stacked({options.lanes, batch, each.size(1), each.size(2), each.size(3)},
                                    options.format, device.dtype(options.type)));
  labels_ = at::empty({options.lanes, batch}, device.dtype(at::kLong));
  position_ = at::zeros({2}, device.dtype(at::kLong));
  planned_position_ = num_parts_ > 1 ? at::zeros_like(position_) : position_;
  call_.position = planned_position_;
  call_.out = images_;
  call_.labels_out = {labels_};

  const bool is_elsewhere = !stored.empty() && stored.front().device() != this->device();
  if (options.ahead != Ahead::kAlways && !is_elsewhere) return;
  RingOptions ring{.capacity = kRingBatches,
                   .device = this->device(),
                   .lanes = options.lanes,
                   .batch = batch,
                   .type = options.type,
                   .format = options.format};
  for (const at::Tensor& each : stored)
    ring.image_sizes.push_back({each.size(1), each.size(2), each.size(3)});
  ring_ = std::make_unique<BatchRing>(ring);
  if (!this->device().is_cpu())
    stream_ = c10::impl::VirtualGuardImpl(this->device().type()).getStreamFromGlobalPool(this->device());
}

void BatchDelivery::move_to(int64_t epoch, int64_t batch, std::optional<int64_t> end) {
  position_.select(0, 0).fill_(epoch);
  position_.select(0, 1).fill_(batch);
  place_ = {.epoch = epoch, .batch = batch};
  end_ = end ? std::optional(after({.epoch = epoch, .batch = *end - 1})) : std::nullopt;
}

void BatchDelivery::sync_position() {
  if (!ring_) return;
  const at::Tensor host = position_.to(at::kCPU);
  place_ = {.epoch = host[0].item<int64_t>(), .batch = host[1].item<int64_t>()};
}

BatchDelivery::BatchIndex BatchDelivery::after(BatchIndex place) const {
  int64_t next[] = {place.epoch, place.batch};
  data::advance(next, num_batches_);
  return {next[0], next[1]};
}

void BatchDelivery::make_next() {
  const c10::Stream producer = stream_ ? *stream_ : current_stream(device());
  Made made{.place = next_, .lease = ring_->acquire(producer)};
  const BatchBuffers& buffers = made.lease.buffers();
  GatherCall call = call_;
  call.position = at::tensor({next_.epoch, planned(next_.batch)}, at::kLong);
  call.out = buffers.fields;
  call.labels_out = {buffers.labels};
  {
    std::optional<c10::StreamGuard> guard;
    if (stream_) guard.emplace(producer);
    gather_into(call);
  }
  made.lease.mark_ready(producer);
  made_.push_back(std::move(made));
  next_ = after(next_);
}

void BatchDelivery::prepare() {
  if (!ring_) return;
  if (made_.empty() || made_.front().place != place_) {
    made_.clear();
    next_ = place_;
    make_next();
  }
  const c10::Stream consumer = current_stream(device());
  BatchRing::Lease lease = std::move(made_.front().lease);
  made_.pop_front();
  lease.wait_ready(consumer);
  const BatchBuffers& buffers = lease.buffers();
  for (size_t field = 0; field < images_.size(); ++field)
    images_[field].copy_(buffers.fields[field], /*non_blocking=*/true);
  labels_.copy_(buffers.labels, /*non_blocking=*/true);
  lease.release(consumer);
  place_ = after(place_);
  while (ring_->num_free() > 0 && next_ != end_) make_next();
}

void BatchDelivery::deliver() {
  if (ring_) return;
  if (num_parts_ > 1) {
    planned_position_.copy_(position_);
    planned_position_.select(0, 1).mul_(num_parts_).add_(part_);
  }
  gather_into(call_);
}

void BatchDelivery::advance() {
  advance_position_(position_, num_batches_);
}

}  // namespace espalier::data
