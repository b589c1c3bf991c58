#include "espalier/data/delivery.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "espalier/data/iterator.h"
#include "tests/data/small_data.h"
#include "tests/support/cuda.h"
#include "tests/support/host_reads.h"
#include "tests/support/message.h"

namespace espalier::data {
namespace {

using testing::image_spec;
using testing::small_dataset;

HostDataset two_fields() {
  return small_dataset({image_spec(7, 6, 1), {"depth", SampleType::kU16, 5, 5, 3}}, 47, 10);
}

GatherIterator iterator_over(const std::shared_ptr<const ResidentDataset>& dataset, const char* device,
                             PlanKind kind = PlanKind::kOwn) {
  const PlanOptions plan{.kind = kind,
                         .n_envs = 3,
                         .batch_size_per_env = 5,
                         .env_devices = std::vector<std::string>(3, device),
                         .seed = 4};
  return GatherIterator(IteratorOptions::training(plan, at::kFloat), {dataset}, Split::kTrain);
}

DeliveryOptions options_of(const GatherIterator& iterator, Ahead ahead) {
  return {.fields = {0, 1}, .lanes = 3, .num_batches = iterator.length(), .ahead = ahead};
}

// What a step does with it.
std::vector<at::Tensor> step(BatchDelivery& delivery) {
  delivery.prepare();
  delivery.deliver();
  std::vector<at::Tensor> seen;
  for (const at::Tensor& images : delivery.images()) seen.push_back(images.cpu().clone());
  seen.push_back(delivery.labels().cpu().clone());
  delivery.advance();
  return seen;
}

void expect_same(const std::vector<at::Tensor>& got, const std::vector<at::Tensor>& want,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(at::equal(got[i], want[i])) << what << ", tensor " << i;
}

// Epochs in order, one twice, one begun and left in the middle, and one gone on with from a checkpoint.
void expect_the_same_batches(BatchDelivery& got, BatchDelivery& want, int64_t num_batches) {
  const void* const address = got.images()[0].const_data_ptr();
  for (const int64_t epoch : {0, 1, 2, 2, 7, 8}) {
    got.move_to(epoch);
    want.move_to(epoch);
    const int64_t taken = epoch == 7 ? 1 : num_batches;
    for (int64_t batch = 0; batch < taken; ++batch)
      expect_same(step(got), step(want),
                  "epoch " + std::to_string(epoch) + ", batch " + std::to_string(batch));
  }
  const at::Tensor saved = at::tensor({5, 1}, at::kLong);
  for (BatchDelivery* each : {&got, &want}) {
    each->position().copy_(saved);
    each->sync_position();
  }
  for (int64_t batch = 1; batch < num_batches; ++batch) expect_same(step(got), step(want), "resumed");
  EXPECT_TRUE(at::equal(got.position().cpu(), want.position().cpu()));
  EXPECT_EQ(got.images()[0].const_data_ptr(), address) << "a captured step reads one address";
}

TEST(BatchDelivery, DeliversTheSameBatchesMadeAheadOrInTheStep) {
  const auto dataset = testing::resident(two_fields());
  for (const PlanKind kind : {PlanKind::kOwn, PlanKind::kSplit}) {
    GatherIterator iterator = iterator_over(dataset, "cpu", kind);
    ASSERT_GT(iterator.length(), 2);
    BatchDelivery ahead(iterator.gather_call(0), options_of(iterator, Ahead::kAlways));
    BatchDelivery plain(iterator.gather_call(0), options_of(iterator, Ahead::kFromHostMemory));
    expect_the_same_batches(ahead, plain, iterator.length());
  }
}

// Parts of a batch: of 6 samples, over three processes.
TEST(BatchDelivery, DeliversPartsThatMakeUpTheBatchOfOneProcess) {
  const auto dataset = testing::resident(two_fields());
  const auto served = [&](int64_t batch) {
    const PlanOptions plan{.kind = PlanKind::kOwn, .batch_size_per_env = batch, .seed = 4};
    return GatherIterator(IteratorOptions::training(plan, at::kFloat), {dataset}, Split::kTrain);
  };
  const GatherIterator whole = served(6), part = served(2);
  const int64_t num_batches = part.length() / 3;
  ASSERT_EQ(num_batches, whole.length());
  for (const Ahead ahead : {Ahead::kFromHostMemory, Ahead::kAlways}) {
    BatchDelivery one(whole.gather_call(0), {.fields = {0, 1}, .num_batches = num_batches, .ahead = ahead});
    std::vector<std::unique_ptr<BatchDelivery>> parts;
    for (const int64_t number : {0, 1, 2})
      parts.push_back(std::make_unique<BatchDelivery>(
          part.gather_call(0),
          DeliveryOptions{
              .fields = {0, 1}, .num_batches = num_batches, .ahead = ahead, .num_parts = 3, .part = number}));
    // From the middle of an epoch into the next one.
    one.move_to(5, num_batches - 2);
    for (const auto& each : parts) each->move_to(5, num_batches - 2);
    for (int64_t batch = 0; batch < 4; ++batch) {
      const std::vector<at::Tensor> want = step(one);
      const std::vector<at::Tensor> a = step(*parts[0]), b = step(*parts[1]), c = step(*parts[2]);
      for (size_t i = 0; i < want.size(); ++i)
        ASSERT_TRUE(at::equal(at::cat({a[i], b[i], c[i]}, 1), want[i]))
            << "batch " << batch << ", tensor " << i;
    }
    for (const auto& each : parts) EXPECT_TRUE(at::equal(each->position(), one.position()));
  }
}

TEST(BatchDelivery, DeliversWhatTheIteratorServes) {
  const auto dataset = testing::resident(two_fields());
  GatherIterator iterator = iterator_over(dataset, "cpu");
  BatchDelivery delivery(iterator.gather_call(0), options_of(iterator, Ahead::kAlways));
  delivery.move_to(3);
  iterator.begin_epoch(3);
  while (const auto batches = iterator.next_stacked()) {
    const StackedBatch& want = batches->front();
    expect_same(step(delivery), {want.fields[0], want.fields[1], want.labels}, "batch");
  }
}

TEST(BatchDelivery, GoesOnIntoTheNextEpochByItself) {
  const auto dataset = testing::resident(two_fields());
  GatherIterator iterator = iterator_over(dataset, "cpu");
  for (const Ahead ahead : {Ahead::kAlways, Ahead::kFromHostMemory}) {
    BatchDelivery delivery(iterator.gather_call(0), options_of(iterator, ahead));
    BatchDelivery middle(iterator.gather_call(0), options_of(iterator, ahead));
    delivery.move_to(3);
    middle.move_to(4, 1);
    for (int64_t epoch = 3; epoch < 6; ++epoch) {
      iterator.begin_epoch(static_cast<uint64_t>(epoch));
      int64_t batch = 0;
      while (const auto batches = iterator.next_stacked()) {
        const StackedBatch& want = batches->front();
        const std::vector<at::Tensor> tensors{want.fields[0], want.fields[1], want.labels};
        EXPECT_TRUE(at::equal(delivery.position(), at::tensor({epoch, batch++}, at::kLong)));
        expect_same(step(delivery), tensors, "walked");
        if (epoch == 5 || (epoch == 4 && batch > 1)) expect_same(step(middle), tensors, "from the middle");
      }
    }
    EXPECT_TRUE(at::equal(delivery.position(), at::tensor({6, 0}, at::kLong)));
  }
}

// As an evaluation does it: the same pass again and again, or parts of a split in turn.
TEST(BatchDelivery, MakesNoBatchThatAPassDoesNotAskFor) {
  const auto dataset = testing::resident(two_fields());
  const PlanOptions plan{
      .n_envs = 3, .batch_size_per_env = 5, .env_devices = std::vector<std::string>(3, "cpu"), .seed = 4};
  GatherIterator iterator(IteratorOptions::evaluation(plan, at::kFloat), {dataset}, Split::kTrain);
  ASSERT_EQ(iterator.length(), 10);
  BatchDelivery ahead(iterator.gather_call(0), options_of(iterator, Ahead::kAlways));
  BatchDelivery plain(iterator.gather_call(0), options_of(iterator, Ahead::kFromHostMemory));
  const auto expect_gathers = [&](int64_t begin, int64_t end) {
    const std::string pass = "batches " + std::to_string(begin) + " to " + std::to_string(end);
    plain.move_to(0, begin, end);
    std::vector<std::vector<at::Tensor>> want;
    for (int64_t batch = begin; batch < end; ++batch) want.push_back(step(plain));
    ahead.move_to(0, begin, end);
    const support::RangeCounter gathers("espalier::gather_into", at::RecordScope::FUNCTION);
    for (const std::vector<at::Tensor>& batch : want) expect_same(step(ahead), batch, pass);
    EXPECT_EQ(gathers.count(), end - begin) << pass;
  };
  using Pass = std::pair<int64_t, int64_t>;
  for (const auto& [begin, end] :
       {Pass{0, 10}, Pass{0, 10}, Pass{0, 5}, Pass{5, 10}, Pass{2, 3}, Pass{3, 3}, Pass{3, 5}, Pass{0, 10}})
    expect_gathers(begin, end);
  // What a training does afterwards goes on without an end.
  ahead.move_to(0, 8);
  const support::RangeCounter gathers("espalier::gather_into", at::RecordScope::FUNCTION);
  step(ahead);
  EXPECT_EQ(gathers.count(), kRingBatches + 1);
}

TEST(BatchDelivery, RefusesMoreLanesThanThePlanServes) {
  const auto dataset = testing::resident(two_fields());
  GatherIterator iterator = iterator_over(dataset, "cpu");
  DeliveryOptions options = options_of(iterator, Ahead::kAlways);
  options.lanes = 4;
  EXPECT_ERROR(BatchDelivery(iterator.gather_call(0), options), UsageError, "3 lanes of 4");
}

TEST(BatchDeliveryCuda, DeliversFromHostMemoryWhatTheDeviceHolds) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const HostDataset host = two_fields();
  const c10::Device gpu(c10::kCUDA, 0);
  ResidentConfig in_host{.validation = 0}, on_device{.validation = 0};
  in_host.residency = WantedResidency::kHost;
  on_device.residency = WantedResidency::kDevice;
  const auto far = testing::resident(host, in_host, gpu), near = testing::resident(host, on_device, gpu);
  ASSERT_EQ(far->residency, Residency::kHost);
  GatherIterator far_iterator = iterator_over(far, "cuda"), near_iterator = iterator_over(near, "cuda");
  BatchDelivery got(far_iterator.gather_call(0), options_of(far_iterator, Ahead::kFromHostMemory));
  BatchDelivery want(near_iterator.gather_call(0), options_of(near_iterator, Ahead::kFromHostMemory));
  expect_the_same_batches(got, want, far_iterator.length());
}

}  // namespace
}  // namespace espalier::data
