#include "espalier/data/plan.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::data {
namespace {

PlanOptions on_cpu(PlanKind kind, int64_t envs, int64_t batch, LastBatch last = LastBatch::kDrop) {
  return {.kind = kind,
          .n_envs = envs,
          .batch_size_per_env = batch,
          .env_devices = std::vector<std::string>(static_cast<size_t>(envs), "cpu"),
          .seed = 7,
          .last_batch = last};
}

TEST(GatherPlan, NamesTheValueThatItRefuses) {
  PlanOptions options = on_cpu(PlanKind::kSplit, 2, 4);
  options.batch_size_per_env = 0;
  EXPECT_ERROR(GatherPlan(options, 10), UsageError, "batch_size_per_env", "0");
  options = on_cpu(PlanKind::kSplit, 2, 4);
  options.n_envs = 0;
  EXPECT_ERROR(GatherPlan(options, 10), UsageError, "n_envs", "0");
  options = on_cpu(PlanKind::kSplit, 2, 4);
  options.env_devices.push_back("cpu");
  EXPECT_ERROR(GatherPlan(options, 10), UsageError, "env_devices", "3");
  for (const char* name : {"cuda:", "cuda:-1", "cuda:x", "gpu", "", "cuda:1 ", "cuda:99999999999", "CPU"}) {
    options = on_cpu(PlanKind::kSplit, 1, 4);
    options.env_devices = {name};
    EXPECT_ERROR(GatherPlan(options, 10), UsageError, fmt::format("'{}'", name), "cuda:N");
  }
  options = on_cpu(PlanKind::kSplit, 1, 4);
  options.env_devices = {"cuda:2"};
  options.num_cuda_devices = 2;
  EXPECT_ERROR(GatherPlan(options, 10), UsageError, "cuda:2", "2 CUDA device");
}

TEST(GatherPlan, MakesCudaTheFirstDeviceBeforeGrouping) {
  PlanOptions options = on_cpu(PlanKind::kSplit, 4, 2);
  options.env_devices = {"cuda", "cuda:1", "cuda:0", "cpu"};
  const GatherPlan plan(options, 100);
  ASSERT_EQ(plan.groups().size(), 3u);
  EXPECT_EQ(plan.groups()[0].device.text(), "cuda:0");
  EXPECT_EQ(plan.groups()[0].envs, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(plan.groups()[1].envs, (std::vector<int64_t>{1}));
  EXPECT_EQ(plan.groups()[2].device.text(), "cpu");
}

TEST(GatherPlan, SplitsABatchAsTensorSplitDoes) {
  const GatherPlan plan(on_cpu(PlanKind::kSplit, 3, 4, LastBatch::kKeep), 10);
  EXPECT_EQ(plan.length(), 1);
  EXPECT_EQ(plan.counts(0), (std::vector<int64_t>{4, 3, 3}));
}

TEST(GatherPlan, SharesOnePermutationOutOverADevicesEnvironments) {
  const int64_t num_samples = 103;
  const GatherPlan plan(on_cpu(PlanKind::kSplit, 3, 5, LastBatch::kKeep), num_samples);
  const Permutation order(7, 2, num_samples, Purpose::kPermutation);
  std::vector<int64_t> served;
  for (int64_t batch = 0; batch < plan.length(); ++batch)
    for (int64_t env = 0; env < 3; ++env)
      for (const int64_t sample : plan.samples(env, 2, batch)) served.push_back(sample);
  ASSERT_EQ(served.size(), 103u);
  for (int64_t i = 0; i < num_samples; ++i)
    EXPECT_EQ(served[static_cast<size_t>(i)], static_cast<int64_t>(order(static_cast<uint64_t>(i))));
}

TEST(GatherPlan, GivesEveryLaneItsOwnPermutationOfTheWholeSplit) {
  const GatherPlan plan(on_cpu(PlanKind::kOwn, 3, 10, LastBatch::kKeep), 95);
  std::vector<std::vector<int64_t>> orders(3);
  for (int64_t env = 0; env < 3; ++env) {
    for (int64_t batch = 0; batch < plan.length(); ++batch)
      for (const int64_t sample : plan.samples(env, 0, batch))
        orders[static_cast<size_t>(env)].push_back(sample);
    const std::set<int64_t> distinct(orders[static_cast<size_t>(env)].begin(),
                                     orders[static_cast<size_t>(env)].end());
    EXPECT_EQ(distinct.size(), 95u);
    EXPECT_EQ(*distinct.rbegin(), 94);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
}

TEST(GatherPlan, OrdersALaneAlikeHoweverManyLanesThereAre) {
  const GatherPlan few(on_cpu(PlanKind::kOwn, 4, 10), 95);
  const GatherPlan many(on_cpu(PlanKind::kOwn, 128, 10), 95);
  EXPECT_EQ(few.samples(3, 5, 2), many.samples(3, 5, 2));
}

TEST(GatherPlan, GivesAllLanesTheSameSamplesInFileOrderForEvaluation) {
  PlanOptions options = on_cpu(PlanKind::kShared, 3, 4, LastBatch::kKeep);
  options.order = SampleOrder::kFile;
  const GatherPlan plan(options, 10);
  ASSERT_EQ(plan.length(), 3);
  EXPECT_EQ(plan.samples(0, 0, 2), (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(plan.samples(2, 9, 2), (std::vector<int64_t>{8, 9}));
}

TEST(GatherPlan, OrdersByDeviceIndexAndEpochAlone) {
  const auto first = [](const std::string& device, uint64_t seed, uint64_t epoch) {
    PlanOptions options = on_cpu(PlanKind::kSplit, 1, 50);
    options.env_devices = {device};
    options.seed = seed;
    return GatherPlan(options, 1000).samples(0, epoch, 0);
  };
  EXPECT_EQ(first("cpu", 3, 1), first("cuda:0", 3, 1));
  EXPECT_EQ(first("cuda:1", 3, 1), first("cuda:0", 3 + 1009, 1));
  EXPECT_NE(first("cuda:1", 3, 1), first("cuda:0", 3, 1));
  EXPECT_NE(first("cpu", 3, 1), first("cpu", 3, 2));
  // 2^64 - 1 + 1009 wraps to 1008.
  EXPECT_EQ(first("cuda:1", ~uint64_t{0}, 4), first("cuda:0", 1008, 4));
}

TEST(GatherPlan, TakesTheShortestDevicesLength) {
  PlanOptions options = on_cpu(PlanKind::kSplit, 3, 10);
  options.env_devices = {"cuda:0", "cuda:0", "cuda:1"};
  EXPECT_EQ(GatherPlan(options, 105).length(), 5);
  options.last_batch = LastBatch::kKeep;
  EXPECT_EQ(GatherPlan(options, 105).length(), 6);
}

TEST(GatherPlan, RefusesAHoleAmongTheEnvironments) {
  PlanOptions options = on_cpu(PlanKind::kSplit, 4, 2, LastBatch::kKeep);
  options.env_devices = {"cuda:0", "cuda:0", "cuda:1", "cuda:1"};
  const GatherPlan plan(options, 5);  // the second batch has one sample a device: environments 0 and 2
  EXPECT_EQ(plan.counts(0), (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_ERROR(plan.counts(1), Error, "environment 2", "environment 1");
}

TEST(GatherPlan, YieldsNothingFromAnEmptySplitAndOnePartialBatchFromASmallOne) {
  EXPECT_EQ(GatherPlan(on_cpu(PlanKind::kSplit, 2, 4), 0).length(), 0);
  EXPECT_EQ(GatherPlan(on_cpu(PlanKind::kSplit, 2, 4, LastBatch::kKeep), 0).length(), 0);
  EXPECT_EQ(GatherPlan(on_cpu(PlanKind::kSplit, 2, 4), 7).length(), 0);
  EXPECT_EQ(GatherPlan(on_cpu(PlanKind::kSplit, 2, 4, LastBatch::kKeep), 7).length(), 1);
}

TEST(ValidationSamples, AreDistinctAscendingAndChosenBySeed) {
  const auto chosen = validation_samples(1000, 100, 5);
  ASSERT_EQ(chosen.size(), 100u);
  for (size_t i = 1; i < chosen.size(); ++i) EXPECT_LT(chosen[i - 1], chosen[i]);
  EXPECT_GE(chosen.front(), 0);
  EXPECT_LT(chosen.back(), 1000);
  EXPECT_NE(chosen, validation_samples(1000, 100, 6));
  EXPECT_EQ(chosen, validation_samples(1000, 100, 5));
  EXPECT_TRUE(validation_samples(1000, 0, 5).empty());
  EXPECT_ERROR(validation_samples(10, 10, 0), UsageError, "validation", "10");
}

}  // namespace
}  // namespace espalier::data
