#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/train/deterministic_scope.h"
#include "tests/support/cuda.h"
#include "tests/train/small_linet.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

namespace espalier::train {
namespace {

using testing::copy_of;
using testing::small_linet;
using testing::small_linet_options;

// With all that changes from step to step: schedule, ramp, blanking, dropout.
LinetOptions on_cuda(bool graphs, const std::string& amp) {
  LinetOptions options = small_linet_options();
  options.device = "cuda";
  options.graphs = graphs;
  options.amp = amp;
  options.modality_dropout = 0.3;
  options.modality_ramp = 2;
  options.dropout = 0.2;
  options.balance = 0.01;
  options.clip = 5;
  return options;
}

TEST(LinetStepCuda, ReplaysWhatItDoesEagerlyOverASchedule) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const DeterministicScope deterministic(true);  // in fp32 convolutions are torch's
  for (const char* amp : {"off", "bfloat16", "float16"}) {
    const auto replayed = small_linet(on_cuda(true, amp)), eager = small_linet(on_cuda(false, amp));
    for (int epoch = 0; epoch < 4; ++epoch) {
      const LinetEpoch a = replayed->train_epoch(), b = eager->train_epoch();
      EXPECT_EQ(a.trained.loss, b.trained.loss) << amp << ", epoch " << epoch;
      EXPECT_EQ(a.validated.loss, b.validated.loss) << amp << ", epoch " << epoch;
    }
    const auto x = copy_of(replayed->net()), y = copy_of(eager->net());
    for (const auto& [name, tensor] : x)
      EXPECT_TRUE(at::equal(tensor, y.at(name))) << amp << " " << name << ", largest difference "
                                                 << (tensor - y.at(name)).abs().max().item<double>();
    EXPECT_EQ(replayed->step().graphs().num_captures(), 1);
  }
}

TEST(LinetStepCuda, TrainsAsTheCpuDoesInFp32) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  LinetOptions gpu = on_cuda(true, "off");
  gpu.optimizer = "sgd";  // Adam's first step is the sign of a gradient, whose last bit is enough to turn it
  LinetOptions cpu = gpu;
  cpu.device = "cpu";
  const LinetEpoch a = small_linet(gpu)->train_epoch(), b = small_linet(cpu)->train_epoch();
  EXPECT_NEAR(a.trained.loss, b.trained.loss, 1e-3 * b.trained.loss);
}

TEST(LinetStepCuda, NeitherWaitsForTheDeviceNorAllocatesInTheSteadyState) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const auto trainer = small_linet(on_cuda(true, "bfloat16"));
  trainer->train_epoch();
  trainer->step().begin_epoch(1);
  trainer->step().run();
  const auto allocated = [] {
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
    return std::pair(stats.num_device_alloc, stats.allocation[0].allocated);
  };
  const auto before = allocated();
  auto& state = c10::cuda::warning_state();
  state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
  EXPECT_NO_THROW(for (int i = 0; i < 2; ++i) trainer->step().run());
  state.set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  EXPECT_EQ(allocated(), before);
}

}  // namespace
}  // namespace espalier::train
#endif
