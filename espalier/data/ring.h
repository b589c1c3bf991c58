// A ring of K reusable batch buffers on one device, fenced by events: no allocation after construction, no
// host wait ever.
//
// Why a buffer may be reused: a lease is given back with release(stream), which records an event behind the
// consumer's last use on that stream; the next producer of that buffer makes its own stream wait for the
// event, on the device, before it writes. A buffer is never handed to two leases at once: asking for a
// (K+1)-th without returning one is an error that names K. Leases may be moved between threads and may
// outlive the ring.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <memory>
#include <vector>

#include "espalier/tensor/layout.h"

namespace espalier::data {

struct RingOptions {
  int64_t capacity = 3;  // K
  c10::Device device = c10::kCPU;
  int64_t lanes = 1;
  int64_t batch = 1;
  std::vector<std::vector<int64_t>> image_sizes;  // per field: {C, H, W}
  at::ScalarType type = at::kFloat;
  MemoryFormat format = MemoryFormat::kChannelsLast;
};

struct BatchBuffers {
  std::vector<at::Tensor> fields;  // F x [L,B,C,H,W] f32|bf16|f16, every lane a dense channels-last slab
  at::Tensor labels;               // [L,B] i64; -100 where there is no sample
  at::Tensor mask;                 // [L,B] bool: whether there is one
};

// Bytes of one ring; the largest int64 where a size is negative or the product overflows.
int64_t ring_bytes(const RingOptions& options);

class BatchRing {
  struct State;

 public:
  class Lease {
   public:
    Lease() = default;
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) noexcept;
    ~Lease();  // release() on the current stream

    bool valid() const { return state_ != nullptr; }
    const BatchBuffers& buffers() const;

    // Producer: records that the buffers are written, in the order of `stream`.
    void mark_ready(c10::Stream stream);
    // Consumer: makes `stream` wait, on the device, until they are.
    void wait_ready(c10::Stream stream) const;
    // Consumer: gives the buffer back once what `stream` holds so far is done.
    void release(c10::Stream stream);

   private:
    friend class BatchRing;
    Lease(std::shared_ptr<State> state, size_t slot);
    std::shared_ptr<State> state_;
    size_t slot_ = 0;
  };

  explicit BatchRing(const RingOptions& options);

  int64_t capacity() const;
  int64_t num_free() const;

  // A free buffer, after making `producer` wait, on the device, for the last consumer of it.
  Lease acquire(c10::Stream producer);

 private:
  std::shared_ptr<State> state_;
};

}  // namespace espalier::data
