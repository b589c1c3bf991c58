// Dataset, iterator and ring on a GPU: against the CPU, and the promises about memory, launches and waiting.
#include <gtest/gtest.h>

#if ESPALIER_WITH_CUDA
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <torch/torch.h>

#include <cstdlib>
#include <limits>
#include <random>

#include "espalier/data/iterator.h"
#include "tests/data/small_data.h"
#include "tests/support/cuda.h"

namespace espalier::data {
namespace {

using testing::image_spec;
using testing::small_dataset;

const c10::Device kGpu("cuda:0");

PlanOptions lanes(int64_t envs, int64_t batch, const char* device, PlanKind kind = PlanKind::kSplit) {
  return {.kind = kind,
          .n_envs = envs,
          .batch_size_per_env = batch,
          .env_devices = std::vector<std::string>(static_cast<size_t>(envs), device),
          .seed = 5};
}

ResidentConfig placed(WantedResidency residency) {
  ResidentConfig options{.validation = 0};
  options.residency = residency;
  return options;
}

// Waiting for the device is an error while this lives (for what ATen itself would wait for).
class NoHostWaits {
 public:
  NoHostWaits() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  ~NoHostWaits() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
};

int64_t num_allocations() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocation[0].allocated;
}

TEST(ResidentDatasetCuda, NeverHoldsTwoCopiesOfASplit) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const HostDataset host = small_dataset({image_spec(64, 64, 3)}, 8000, 800);
  at::globalContext().lazyInitDevice(c10::kCUDA);  // the allocator's statistics want it
  for (const Stored store : {Stored::kAsSource, Stored::kFloat32, Stored::kBFloat16}) {
    ResidentConfig options;
    options.store = store;
    c10::cuda::CUDACachingAllocator::emptyCache();
    c10::cuda::CUDACachingAllocator::resetPeakStats(0);
    const int64_t before = c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].current;
    const auto data = testing::resident(host, options, kGpu);
    const int64_t peak = c10::cuda::CUDACachingAllocator::getDeviceStats(0).allocated_bytes[0].peak - before;
    EXPECT_LE(static_cast<double>(peak), 1.05 * static_cast<double>(data->bytes()))
        << static_cast<int>(store);
    const auto on_cpu = testing::resident(host, options);
    EXPECT_TRUE(at::equal(data->train.fields[0].values.cpu(), on_cpu->train.fields[0].values));
    EXPECT_TRUE(at::equal(data->validation.labels.cpu(), on_cpu->validation.labels));
    EXPECT_TRUE(is_channels_last(data->train.fields[0].values));
  }
}

TEST(GatherIteratorCuda, GivesTheBatchesOfTheCpu) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const HostDataset host =
      small_dataset({image_spec(12, 9, 3), {"depth", SampleType::kU16, 5, 5, 1}}, 211, 30);
  const auto on_cpu = testing::resident(host);
  for (const WantedResidency residency : {WantedResidency::kDevice, WantedResidency::kHost}) {
    const auto on_gpu = testing::resident(host, placed(residency), kGpu);
    for (const PlanKind kind : {PlanKind::kSplit, PlanKind::kOwn}) {
      auto cpu_options = IteratorOptions::training(lanes(5, 7, "cpu", kind), at::kFloat);
      auto gpu_options = IteratorOptions::training(lanes(5, 7, "cuda", kind), at::kFloat);
      cpu_options.plan.last_batch = gpu_options.plan.last_batch = LastBatch::kKeep;
      GatherIterator want(cpu_options, {on_cpu}, Split::kTrain), got(gpu_options, {on_gpu}, Split::kTrain);
      GatherIterator owned(gpu_options, {on_gpu}, Split::kTrain);
      for (uint64_t epoch = 0; epoch < 2; ++epoch) {
        want.begin_epoch(epoch);
        got.begin_epoch(epoch);
        owned.begin_epoch(epoch);
        while (auto a = want.next_stacked()) {
          const auto b = got.next_stacked();
          const auto c = owned.next();
          ASSERT_TRUE(b && c);
          for (size_t f = 0; f < 2; ++f) {
            ASSERT_TRUE(at::equal(a->front().fields[f], b->front().fields[f].cpu()))
                << static_cast<int>(residency);
            for (const EnvBatch& batch : *c) {
              const int64_t count = batch.labels.numel();
              EXPECT_TRUE(is_channels_last(batch.fields[f]));
              ASSERT_TRUE(
                  at::equal(a->front().fields[f][batch.env].slice(0, 0, count), batch.fields[f].cpu()));
            }
          }
          ASSERT_TRUE(at::equal(a->front().labels, b->front().labels.cpu()));
          ASSERT_TRUE(at::equal(a->front().mask, b->front().mask.cpu()));
        }
      }
    }
  }
}

TEST(GatherIteratorCuda, GoesOnWhereItsStateWasTakenThoughBatchesWereMadeAhead) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const auto data =
      testing::resident(small_dataset({image_spec(12, 9, 3)}, 211, 30), placed(WantedResidency::kHost), kGpu);
  GatherIterator whole(IteratorOptions::training(lanes(2, 7, "cuda"), at::kFloat), {data}, Split::kTrain);
  whole.begin_epoch(1);
  for (int i = 0; i < 4; ++i) whole.next_stacked();
  const IteratorState state = whole.state();
  EXPECT_EQ(state.batch, 4);
  const at::Tensor want = whole.next_stacked()->front().fields[0].clone();
  whole.next_stacked();
  whole.restore(state);
  EXPECT_TRUE(at::equal(whole.next_stacked()->front().fields[0], want));
}

TEST(GatherIteratorCuda, NeitherAllocatesNorWaitsOnceWarm) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  for (const WantedResidency residency : {WantedResidency::kDevice, WantedResidency::kHost}) {
    const auto data = testing::resident(small_dataset({image_spec()}, 2000, 10), placed(residency), kGpu);
    GatherIterator iterator(IteratorOptions::training(lanes(8, 16, "cuda"), at::kBFloat16), {data},
                            Split::kTrain);
    iterator.begin_epoch(0);
    iterator.next_stacked();
    const int64_t before = num_allocations();
    const NoHostWaits guard;
    while (iterator.next_stacked()) {
    }
    EXPECT_EQ(num_allocations(), before) << static_cast<int>(residency);
  }
}

TEST(GatherIteratorCuda, LaunchesOneKernelABatchAndReplaysFromItsPosition) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const HostDataset host = small_dataset({image_spec(), {"depth", SampleType::kU16, 16, 16, 1}}, 500, 10);
  const auto data = testing::resident(host, placed(WantedResidency::kDevice), kGpu);
  GatherIterator iterator(IteratorOptions::training(lanes(4, 16, "cuda"), at::kBFloat16), {data},
                          Split::kTrain);
  GatherCall call = iterator.gather_call(0);
  call.position = at::zeros({2}, at::TensorOptions(at::kLong).device(kGpu));
  const auto options = at::TensorOptions(at::kBFloat16).device(kGpu);
  call.out = {empty_stacked({4, 16, 3, 32, 32}, MemoryFormat::kChannelsLast, options),
              empty_stacked({4, 16, 1, 16, 16}, MemoryFormat::kChannelsLast, options)};
  call.labels_out = {at::empty({4, 16}, options.dtype(at::kLong))};
  call.mask_out = at::empty({4, 16}, options.dtype(at::kBool));
  gather_into(call);

  const auto stream = c10::cuda::getStreamFromPool(false, 0);
  cudaGraph_t graph = nullptr;
  {
    const c10::cuda::CUDAStreamGuard guard(stream);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    gather_into(call);
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  }
  size_t num_nodes = 0;
  ASSERT_EQ(cudaGraphGetNodes(graph, nullptr, &num_nodes), cudaSuccess);
  EXPECT_EQ(num_nodes, 1u);
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (int64_t batch = 0; batch < 3; ++batch) {
    call.position.copy_(at::tensor({int64_t{2}, batch}));
    c10::cuda::device_synchronize();
    ASSERT_EQ(cudaGraphLaunch(replay, stream), cudaSuccess);
    c10::cuda::device_synchronize();
    iterator.restore({.epoch = 2, .batch = batch});
    const auto want = iterator.next_stacked();
    for (size_t f = 0; f < 2; ++f) EXPECT_TRUE(at::equal(call.out[f], want->front().fields[f]));
    EXPECT_TRUE(at::equal(call.labels_out[0], want->front().labels));
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

// Many consumers of random delay on streams of their own; every batch is copied out and compared at the end.
void stress(WantedResidency residency, int64_t num_batches) {
  if (std::getenv("ESPALIER_FEW_SEEDS") != nullptr) num_batches /= 20;  // under compute-sanitizer
  const auto data =
      testing::resident(small_dataset({image_spec(8, 8, 1)}, 4000, 10), placed(residency), kGpu);
  auto options = IteratorOptions::training(lanes(2, 8, "cuda"), at::kFloat);
  options.ring_capacity = 4;
  GatherIterator iterator(options, {data}, Split::kTrain);
  std::vector<c10::cuda::CUDAStream> streams;
  for (int i = 0; i < 8; ++i) streams.push_back(c10::cuda::getStreamFromPool(false, 0));
  const at::Tensor seen = at::zeros({num_batches, 2, 8, 1, 8, 8}, at::TensorOptions(at::kFloat).device(kGpu));
  c10::cuda::device_synchronize();
  std::mt19937 random(11);
  uint64_t epoch = 0;
  iterator.begin_epoch(epoch);
  for (int64_t i = 0; i < num_batches; ++i) {
    auto batches = iterator.next_stacked();
    if (!batches) {
      iterator.begin_epoch(++epoch);
      batches = iterator.next_stacked();
    }
    StackedBatch& batch = batches->front();
    const auto stream = streams[random() % streams.size()];
    const c10::cuda::CUDAStreamGuard guard(stream);
    batch.lease.wait_ready(stream);
    at::cuda::sleep(static_cast<int64_t>(random() % 20000));
    seen[i].copy_(batch.fields[0]);
    // The next producer must come after this, on the device: else its batch would show it.
    batch.fields[0].fill_(std::numeric_limits<double>::quiet_NaN());
    batch.lease.release(stream);
  }
  c10::cuda::device_synchronize();
  GatherIterator again(options, {data}, Split::kTrain);
  epoch = 0;
  again.begin_epoch(epoch);
  int64_t torn = 0;
  at::Tensor want = at::empty_like(seen);
  for (int64_t i = 0; i < num_batches; ++i) {
    auto batches = again.next();
    if (!batches) {
      again.begin_epoch(++epoch);
      batches = again.next();
    }
    for (const EnvBatch& batch : *batches) want[i][batch.env].copy_(batch.fields[0]);
  }
  torn = seen.ne(want).flatten(1).any(1).sum().item<int64_t>();
  EXPECT_EQ(torn, 0) << "of " << num_batches << " batches, " << static_cast<int>(residency);
}

TEST(BatchRingCuda, GivesNoTornBatchToTenThousandSlowConsumers) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  stress(WantedResidency::kDevice, 10000);
}

TEST(BatchRingCuda, GivesNoTornBatchFromHostMemory) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  stress(WantedResidency::kHost, 3000);
}

TEST(GatherIteratorCuda, RecordsOwnedBatchesOnTheStreamThatConsumesThem) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const auto data =
      testing::resident(small_dataset({image_spec()}, 512, 10), placed(WantedResidency::kDevice), kGpu);
  GatherIterator iterator(IteratorOptions::training(lanes(1, 64, "cuda"), at::kFloat), {data}, Split::kTrain);
  iterator.begin_epoch(0);
  const auto stream = c10::cuda::getStreamFromPool(false, 0);
  at::Tensor sum;
  const void* address = nullptr;
  {
    const auto batches = iterator.next();
    address = batches->front().fields[0].const_data_ptr();
    const c10::cuda::CUDAStreamGuard guard(stream);
    at::cuda::sleep(1);  // loads the kernels, which may itself wait
    sum = batches->front().fields[0].sum();
    c10::cuda::device_synchronize();
    at::cuda::sleep(200'000'000);  // a tenth of a second
    sum = batches->front().fields[0].sum();
    batches->front().record_stream(stream);
  }
  // The memory is not handed out again while that stream still reads it.
  const auto next = iterator.next();
  EXPECT_NE(next->front().fields[0].const_data_ptr(), address);
}

}  // namespace
}  // namespace espalier::data
#endif
