// Batch norm over a single value: refused where a trainer can tell, counted where modality dropout leaves
// one.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/jobs/linet.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/linet/small_linet.h"
#include "tests/train/population/small_population.h"

namespace espalier::train {
namespace {

using testing::small_linet;
using testing::small_linet_options;

// Two samples a step, of which modality dropout often leaves a stream one; 32 x 32 pixels are 1 x 1 in the
// last stage, which has five norms.
LinetConfig few_samples() {
  LinetConfig options = small_linet_options();
  options.batch = 2;
  options.modality_dropout = 0.5;
  options.modality_ramp = 0;
  return options;
}
constexpr int64_t kNormsOfOnePixel = 5;

TEST(LinetFallbacks, AreCountedForEveryStreamAndNormOfOnePixel) {
  const LinetEpoch epoch = small_linet(few_samples())->train_epoch();
  ASSERT_EQ(epoch.trained.norm_fallbacks.size(), 3u);
  for (const int64_t count : epoch.trained.norm_fallbacks) {
    EXPECT_GT(count, 0);
    EXPECT_EQ(count % kNormsOfOnePixel, 0);
  }
  LinetConfig all = few_samples();
  all.modality_dropout = 0;
  for (const int64_t count : small_linet(all)->train_epoch().trained.norm_fallbacks) EXPECT_EQ(count, 0);
}

TEST(LinetFallbacks, BeginAnewEveryEpoch) {
  const auto trainer = small_linet(few_samples());
  const auto steps = trainer->steps_per_epoch();
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const int64_t count : trainer->train_epoch().trained.norm_fallbacks)
      EXPECT_LE(count, steps * kNormsOfOnePixel);
}

TEST(LinetFallbacks, KeepTheRunningStatisticsOfAStreamAlive) {
  const auto trainer = small_linet(few_samples());
  double validation = 0;
  for (int epoch = 0; epoch < 3; ++epoch) validation = trainer->train_epoch().validated.loss;
  EXPECT_LT(validation, 100);
  for (const linet::StreamTensor& tensor : trainer->net().stream_tensors())
    if (tensor.name.ends_with("running_var")) {
      EXPECT_GT(tensor.value().max().item<double>(), 1e-6) << tensor.name;
    }
}

TEST(LinetFallbacks, StandInTheLinesOfTheRun) {
  const support::TemporaryFolder folder;
  LinetConfig options;
  options.device = parse_device("cpu");
  options.source.synthetic_train = 30;
  options.source.synthetic_test = 9;
  options.batch = 2;
  options.epochs = 1;
  options.width = 0.0625;
  options.modality_dropout = 0.5;
  options.modality_ramp = 0;
  jobs::run_linet_job({.linet = options, .run = {.run_dir = folder / "run"}}, {});
  std::ifstream in(folder / "run/metrics.jsonl");
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  const auto epoch = nlohmann::json::parse(line);
  int64_t sum = 0;
  for (const auto& [name, stream] : epoch["streams"].items()) sum += stream["norm_fallbacks"].get<int64_t>();
  EXPECT_EQ(epoch["norm_fallbacks"].get<int64_t>(), sum);
  EXPECT_GT(sum, 0);
}

TEST(LinetFallbacks, AreRefusedBeforeTrainingWhereTheBatchTells) {
  LinetConfig options = few_samples();
  options.batch = 1;
  EXPECT_ERROR(small_linet(options), UsageError, "--batch 1", "stage 4", "single value per channel");
}

TEST(Shard, RefusesABatchThatLeavesANormASingleValue) {
  PopulationConfig options = testing::small_options(2);
  options.batch = 1;
  ShardSetup setup = testing::small_setup(options);
  EXPECT_NO_THROW(Shard{setup});
  grow::CnnHostOptions deep = testing::small_host(options);
  deep.n_blocks = 4;
  deep.pool_layers = 3;  // 8 x 8 pixels are 1 x 1 in the fourth block
  setup.host = grow::cnn_host(deep);
  setup.shape = deep;
  EXPECT_ERROR(Shard{setup}, UsageError, "--batch 1", "block3", "single value per channel");
  setup.options.batch = 2;
  EXPECT_NO_THROW(Shard{setup});
}

TEST(LinetFallbacksCuda, AreThoseOfTheCpuReplayedOrNot) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  LinetConfig options = few_samples();
  options.precision = Precision::kFp32;
  const auto want = small_linet(options)->train_epoch().trained.norm_fallbacks;
  options.device = parse_device("cuda");
  for (const bool graphs : {false, true})
    for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
      options.graphs = graphs;
      options.precision = precision;
      EXPECT_EQ(small_linet(options)->train_epoch().trained.norm_fallbacks, want)
          << static_cast<int>(precision) << graphs;
    }
}

}  // namespace
}  // namespace espalier::train
