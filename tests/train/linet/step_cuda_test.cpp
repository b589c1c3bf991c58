#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/train/step/deterministic_scope.h"
#include "tests/support/cuda.h"
#include "tests/train/linet/small_linet.h"
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

namespace espalier::train {
namespace {

using testing::copy_of;
using testing::small_linet;
using testing::small_linet_options;

// With all that changes from step to step: schedule, ramp, blanking, dropout.
LinetConfig on_cuda(bool graphs, Precision precision,
                    linet::LinetRules rules = linet::LinetRules::kOriginal) {
  LinetConfig options = small_linet_options();
  options.rules = rules;
  options.modality_start = rules == linet::LinetRules::kOriginal ? 1 : 0;
  options.device = parse_device("cuda");
  options.graphs = graphs;
  options.precision = precision;
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
  using linet::LinetRules;
  for (const auto& [precision, rules] : {std::pair{Precision::kFp32, LinetRules::kOriginal},
                                         std::pair{Precision::kBf16, LinetRules::kOriginal},
                                         std::pair{Precision::kFp16, LinetRules::kOriginal},
                                         std::pair{Precision::kFp32, LinetRules::kEspalier}}) {
    const int amp = static_cast<int>(precision);
    const auto replayed = small_linet(on_cuda(true, precision, rules)),
               eager = small_linet(on_cuda(false, precision, rules));
    for (int epoch = 0; epoch < 4; ++epoch) {
      const LinetEpoch a = replayed->train_epoch(), b = eager->train_epoch();
      EXPECT_EQ(a.trained.loss, b.trained.loss) << amp << ", epoch " << epoch;
      EXPECT_EQ(a.validated.loss, b.validated.loss) << amp << ", epoch " << epoch;
    }
    const auto x = copy_of(replayed->net()), y = copy_of(eager->net());
    for (const auto& [name, tensor] : x)
      EXPECT_TRUE(at::equal(tensor, y.at(name))) << amp << " " << name << ", largest difference "
                                                 << (tensor - y.at(name)).abs().max().item<double>();
    EXPECT_EQ(replayed->step().graphs().work().captures, 1);
  }
}

// One batch is a pass, so that the first loss is that of the first step. With batches of 10, which are 1 x 1
// pixels in the last stage, weights that differ by 3e-6 already give losses that differ by 1e-3 on the CPU
// alone.
TEST(LinetStepCuda, TrainsAsTheCpuDoesInFp32) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  LinetConfig gpu = on_cuda(true, Precision::kFp32);
  gpu.optimizer = OptimizerKind::kSgd;  // Adam's first step is the sign of a gradient, whose last bit is
                                        // enough to turn it
  gpu.modality_start = 0;
  gpu.batch = 40;
  LinetConfig cpu = gpu;
  cpu.device = parse_device("cpu");
  const auto there = small_linet(gpu), here = small_linet(cpu);
  ASSERT_EQ(here->steps_per_epoch(), 1);
  for (const double tolerance : {1e-4, 1e-3}) {  // before an update, and after one
    const double got = there->train_epoch().trained.loss, want = here->train_epoch().trained.loss;
    EXPECT_NEAR(got, want, tolerance * want);
  }
}

// One graph for the whole run: what blanks more from epoch to epoch is on the device.
TEST(LinetStepCuda, FollowsTheRampAndFrozenStreamsWithoutAnotherCapture) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const DeterministicScope deterministic(true);
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const int amp = static_cast<int>(precision);
    const auto options = [&](bool graphs) {
      LinetConfig made = on_cuda(graphs, precision);
      made.epochs = 8;
      made.stream_patience = 1;
      return made;
    };
    const auto replayed = small_linet(options(true)), eager = small_linet(options(false));
    for (int epoch = 0; epoch < 8; ++epoch) {
      const LinetEpoch a = replayed->train_epoch(), b = eager->train_epoch();
      EXPECT_EQ(a.trained.loss, b.trained.loss) << amp << ", epoch " << epoch;
      EXPECT_EQ(a.validated.loss, b.validated.loss) << amp << ", epoch " << epoch;
      EXPECT_EQ(a.frozen, b.frozen) << amp << ", epoch " << epoch;
    }
    const auto x = copy_of(replayed->net()), y = copy_of(eager->net());
    for (const auto& [name, tensor] : x) EXPECT_TRUE(at::equal(tensor, y.at(name))) << amp << " " << name;
    EXPECT_EQ(replayed->step().graphs().work().captures, 1);
  }
}

TEST(LinetStepCuda, NeitherWaitsForTheDeviceNorAllocatesInTheSteadyState) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const auto trainer = small_linet(on_cuda(true, Precision::kBf16));
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
