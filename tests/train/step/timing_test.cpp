#include "espalier/train/step/timing.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <thread>

#include "espalier/core/error.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#if ESPALIER_WITH_CUDA
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace espalier::train {
namespace {

using std::chrono::milliseconds;

int64_t samples(const PartTimes& times, StepPart part) {
  return times.count[static_cast<size_t>(part)];
}

void step(StepTiming& timing, milliseconds training) {
  timing.begin_step();
  timing.begin(StepPart::kTrain);
  std::this_thread::sleep_for(training);
  timing.end(StepPart::kTrain);
}

TEST(StepTiming, SamplesTheFirstOfEverySoManySteps) {
  StepTiming timing(c10::kCPU, 3);
  for (int i = 0; i < 7; ++i) step(timing, milliseconds(i % 3 == 0 ? 4 : 0));
  const PartTimes times = timing.take();
  EXPECT_EQ(samples(times, StepPart::kTrain), 3);
  EXPECT_GE(times.mean_ms(StepPart::kTrain).value(), 4);
  EXPECT_FALSE(times.mean_ms(StepPart::kValidation)) << "never begun";
}

TEST(StepTiming, ForgetsWhatWasTaken) {
  StepTiming timing(c10::kCPU, 1);
  step(timing, milliseconds(0));
  EXPECT_EQ(samples(timing.take(), StepPart::kTrain), 1);
  EXPECT_EQ(samples(timing.take(), StepPart::kTrain), 0);
}

TEST(StepTiming, MeasuresNothingWhereItIsOff) {
  StepTiming timing(c10::kCPU, 0);
  step(timing, milliseconds(0));
  EXPECT_FALSE(timing.take().mean_ms(StepPart::kTrain));
  EXPECT_ERROR(StepTiming(c10::kCPU, -1), UsageError, "time-every", "-1");
}

TEST(StepTiming, TakesTheMeanOverDevices) {
  PartTimes all{.sum_ms = {10, 0, 1}, .count = {2, 0, 1}};
  all += {.sum_ms = {20, 5, 0}, .count = {1, 1, 0}};
  EXPECT_DOUBLE_EQ(all.mean_ms(StepPart::kTrain).value(), 10);
  EXPECT_DOUBLE_EQ(all.mean_ms(StepPart::kValidation).value(), 5);
  EXPECT_DOUBLE_EQ(all.mean_ms(StepPart::kAct).value(), 1);
}

#if ESPALIER_WITH_CUDA
TEST(StepTimingCuda, ReadsAPartAStepLateAndNeverWaits) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  const c10::Device device(c10::kCUDA, 0);
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index());
  StepTiming timing(device, 1);
  const auto sleep = [&] {
    timing.begin_step();
    timing.begin(StepPart::kTrain);
    at::cuda::sleep(400'000'000);  // cycles: a tenth of a second or more
    timing.end(StepPart::kTrain);
  };
  sleep();
  EXPECT_EQ(samples(timing.take(), StepPart::kTrain), 0) << "it is under way";
  EXPECT_FALSE(stream.query()) << "nobody waited";
  c10::cuda::device_synchronize();
  timing.begin_step();
  const PartTimes times = timing.take();
  EXPECT_EQ(samples(times, StepPart::kTrain), 1);
  EXPECT_GT(times.mean_ms(StepPart::kTrain).value(), 50);
  EXPECT_FALSE(times.mean_ms(StepPart::kAct));

  sleep();
  timing.begin_step();  // too early: left out
  EXPECT_FALSE(stream.query()) << "nobody waited";
  c10::cuda::device_synchronize();
  EXPECT_EQ(samples(timing.take(), StepPart::kTrain), 0);
}
#endif

}  // namespace
}  // namespace espalier::train
