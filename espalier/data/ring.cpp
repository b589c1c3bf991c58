#include "espalier/data/ring.h"

#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <deque>
#include <mutex>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/size_product.h"
#include "espalier/tensor/device.h"

namespace espalier::data {

struct BatchRing::State {
  struct Slot {
    BatchBuffers buffers;
    std::unique_ptr<c10::Event> ready;     // CUDA only
    std::unique_ptr<c10::Event> released;  // CUDA only
  };
  RingOptions options;
  std::vector<Slot> slots;
  std::mutex mutex;
  std::deque<size_t> free;  // oldest release first: its event is the likeliest to have passed

  bool fenced() const { return !options.device.is_cpu(); }
};

int64_t ring_bytes(const RingOptions& options) {
  const auto value_bytes = static_cast<int64_t>(c10::elementSize(options.type));
  int64_t bytes = saturated_product({options.lanes, options.batch, 9});  // a label and a mask byte
  for (const auto& size : options.image_sizes) {
    const int64_t lane = saturated_product({options.batch, size[0], size[1], size[2], value_bytes});
    const int64_t lines = saturated_sum(lane, kLaneAlignmentBytes - 1) / kLaneAlignmentBytes;
    bytes = saturated_sum(bytes, saturated_product({options.lanes, lines, kLaneAlignmentBytes}));
  }
  return saturated_product({options.capacity, bytes});
}

BatchRing::BatchRing(const RingOptions& options) : state_(std::make_shared<State>()) {
  if (options.capacity < 1) fail_usage("ring: want at least 1 buffer, got {}", options.capacity);
  for (const auto& size : options.image_sizes)
    if (size.size() != 3) fail_usage("ring: image_sizes: want {{C, H, W}}, got {} numbers", size.size());
  if (ring_bytes(options) == kTooLarge)
    fail_usage("ring: {} buffers of {} lanes of {} samples do not fit in memory", options.capacity,
               options.lanes, options.batch);
  state_->options = options;
  const auto on_device = at::TensorOptions().device(options.device);
  for (int64_t slot = 0; slot < options.capacity; ++slot) {
    State::Slot made;
    for (const auto& size : options.image_sizes)
      made.buffers.fields.push_back(empty_stacked({options.lanes, options.batch, size[0], size[1], size[2]},
                                                  options.format, on_device.dtype(options.type)));
    made.buffers.labels = at::empty({options.lanes, options.batch}, on_device.dtype(at::kLong));
    made.buffers.mask = at::empty({options.lanes, options.batch}, on_device.dtype(at::kBool));
    if (state_->fenced()) {
      made.ready = std::make_unique<c10::Event>(options.device.type());
      made.released = std::make_unique<c10::Event>(options.device.type());
    }
    state_->slots.push_back(std::move(made));
    state_->free.push_back(static_cast<size_t>(slot));
  }
}

int64_t BatchRing::capacity() const {
  return state_->options.capacity;
}

int64_t BatchRing::num_free() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<int64_t>(state_->free.size());
}

BatchRing::Lease BatchRing::acquire(c10::Stream producer) {
  size_t slot = 0;
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->free.empty())
      fail(
          "ring: all {} batches are still held; release one before asking for the next, or make the ring "
          "deeper",
          state_->options.capacity);
    slot = state_->free.front();
    state_->free.pop_front();
  }
  // A slot that was never released has an event that was never recorded: no wait.
  if (state_->fenced()) state_->slots[slot].released->block(producer);
  return {state_, slot};
}

BatchRing::Lease::Lease(std::shared_ptr<State> state, size_t slot) : state_(std::move(state)), slot_(slot) {}
BatchRing::Lease::Lease(Lease&& other) noexcept : state_(std::move(other.state_)), slot_(other.slot_) {}

BatchRing::Lease& BatchRing::Lease::operator=(Lease&& other) noexcept {
  if (this != &other) {
    if (state_) release(current_stream(state_->options.device));
    state_ = std::move(other.state_);
    slot_ = other.slot_;
  }
  return *this;
}

BatchRing::Lease::~Lease() {
  if (state_) release(current_stream(state_->options.device));
}

const BatchBuffers& BatchRing::Lease::buffers() const {
  if (!state_) fail("ring: this batch was released");
  return state_->slots[slot_].buffers;
}

void BatchRing::Lease::mark_ready(c10::Stream stream) {
  if (state_->fenced()) state_->slots[slot_].ready->record(stream);
}

void BatchRing::Lease::wait_ready(c10::Stream stream) const {
  if (state_->fenced()) state_->slots[slot_].ready->block(stream);
}

void BatchRing::Lease::release(c10::Stream stream) {
  if (!state_) fail("ring: this batch was released already");
  const std::shared_ptr<State> state = std::move(state_);
  State::Slot& slot = state->slots[slot_];
  if (state->fenced()) slot.released->record(stream);
  const std::lock_guard lock(state->mutex);
  state->free.push_back(slot_);
}

}  // namespace espalier::data
