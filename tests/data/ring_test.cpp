#include "espalier/data/ring.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::data {
namespace {

RingOptions options(int64_t capacity, Poison poison = Poison::kOff) {
  return {
      .capacity = capacity, .lanes = 2, .batch = 3, .image_sizes = {{3, 4, 5}, {1, 2, 2}}, .poison = poison};
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

TEST(BatchRing, PoisonsWhatIsReleasedSoThatALateUseShows) {
  BatchRing ring(options(1, Poison::kOn));
  auto lease = ring.acquire(current_stream(c10::kCPU));
  const at::Tensor field = lease.buffers().fields[0], labels = lease.buffers().labels;
  field.fill_(1);
  labels.fill_(1);
  lease.release(current_stream(c10::kCPU));
  EXPECT_TRUE(field.isnan().all().item<bool>());
  EXPECT_TRUE(labels.eq(-1).all().item<bool>());
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
    EXPECT_TRUE(is_stacked_channels_last(field));
    EXPECT_EQ(field.stride(0) * 4 % 256, 0);
    EXPECT_EQ(field.select(0, 1).strides(), field.select(0, 0).strides());
    bytes += static_cast<int64_t>(field.storage().nbytes());
  }
  bytes += static_cast<int64_t>(lease.buffers().labels.nbytes() + lease.buffers().mask.nbytes());
  EXPECT_EQ(ring_bytes(chosen), 2 * bytes);
}

}  // namespace
}  // namespace espalier::data
