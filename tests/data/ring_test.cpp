#include "espalier/data/ring.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/tensor/device.h"
#include "tests/support/message.h"
#include "tests/support/stacked_layout.h"

namespace espalier::data {
namespace {

RingOptions options(int64_t capacity) {
  return {.capacity = capacity, .lanes = 2, .batch = 3, .image_sizes = {{3, 4, 5}, {1, 2, 2}}};
}

TEST(BatchRing, NamesItsCapacityWhenAllBatchesAreHeld) {
  BatchRing ring(options(2));
  const auto stream = current_stream(c10::kCPU);
  auto first = ring.acquire(stream);
  auto second = ring.acquire(stream);
  EXPECT_NE(first.buffers().fields[0].data_ptr(), second.buffers().fields[0].data_ptr());
  EXPECT_ERROR(ring.acquire(stream), Error, "all 2 batches");
  first.release(stream);
  EXPECT_NO_THROW(first = ring.acquire(stream));
  EXPECT_ERROR(BatchRing(options(0)), UsageError, "0");
}

TEST(BatchRing, TakesABatchBackWhenItsLeaseEnds) {
  BatchRing ring(options(1));
  const void* address = nullptr;
  for (int i = 0; i < 5; ++i) {
    const auto lease = ring.acquire(current_stream(c10::kCPU));
    if (address != nullptr) {
      EXPECT_EQ(lease.buffers().fields[0].data_ptr(), address);
    }
    address = lease.buffers().fields[0].data_ptr();
  }
  EXPECT_EQ(ring.num_free(), 1);
}

TEST(BatchRing, RefusesABatchThatWasReleased) {
  BatchRing ring(options(1));
  auto lease = ring.acquire(current_stream(c10::kCPU));
  lease.release(current_stream(c10::kCPU));
  EXPECT_FALSE(lease.valid());
  EXPECT_ERROR(lease.buffers(), Error, "released");
  EXPECT_ERROR(lease.release(current_stream(c10::kCPU)), Error, "released");
}

TEST(BatchRing, OutlivesItsLeasesAndTheyIt) {
  auto ring = std::make_unique<BatchRing>(options(1));
  auto lease = ring->acquire(current_stream(c10::kCPU));
  ring.reset();
  lease.buffers().fields[0].fill_(3);
  EXPECT_EQ(lease.buffers().fields[0].sum().item<double>(), 3.0 * 2 * 3 * 60);
}

TEST(BatchRing, StartsEveryLaneOn256BytesAndCountsItsBytes) {
  const RingOptions chosen = options(2);
  BatchRing ring(chosen);
  const auto lease = ring.acquire(current_stream(c10::kCPU));
  int64_t bytes = 0;
  for (const at::Tensor& field : lease.buffers().fields) {
    EXPECT_TRUE(support::is_stacked_channels_last(field));
    EXPECT_EQ(field.stride(0) * 4 % 256, 0);
    EXPECT_EQ(field.select(0, 1).strides(), field.select(0, 0).strides());
    bytes += static_cast<int64_t>(field.storage().nbytes());
  }
  bytes += static_cast<int64_t>(lease.buffers().labels.nbytes() + lease.buffers().mask.nbytes());
  EXPECT_EQ(ring_bytes(chosen), 2 * bytes);
}

TEST(BatchRing, RefusesSizesWhoseProductOverflows) {
  for (const auto& [lanes, batch] : {std::pair{int64_t{8}, int64_t{1} << 61},
                                     {int64_t{1} << 40, int64_t{1} << 40},
                                     {int64_t{-1}, int64_t{4}},
                                     {int64_t{2}, std::numeric_limits<int64_t>::max()}}) {
    RingOptions chosen = options(2);
    chosen.lanes = lanes;
    chosen.batch = batch;
    EXPECT_EQ(ring_bytes(chosen), std::numeric_limits<int64_t>::max());
    EXPECT_ERROR(BatchRing{chosen}, UsageError, "ring", std::to_string(batch), "do not fit in memory");
  }
  RingOptions chosen = options(2);
  chosen.image_sizes[0] = {3, 4};
  EXPECT_ERROR(BatchRing{chosen}, UsageError, "image_sizes", "2 numbers");
}

}  // namespace
}  // namespace espalier::data
