#include "espalier/data/plan.h"

#include <gtest/gtest.h>

#include <limits>
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

TEST(GatherPlan, SharesOnePassOutOverTheWorldWhateverTheDevices) {
  PlanOptions one = on_cpu(PlanKind::kSplit, 4, 3);
  one.split_by = SplitBy::kWorld;
  PlanOptions many = one;
  many.env_devices = {"cuda:1", "cuda:3", "cpu", "cuda:1"};
  const GatherPlan alone(one, 40), dealt(many, 40);
  EXPECT_EQ(alone.length(), dealt.length());
  std::set<int64_t> seen;
  for (int64_t env = 0; env < 4; ++env)
    for (int64_t batch = 0; batch < alone.length(); ++batch) {
      EXPECT_EQ(alone.samples(env, 2, batch), dealt.samples(env, 2, batch)) << env << ", " << batch;
      for (const int64_t sample : dealt.samples(env, 2, batch))
        EXPECT_TRUE(seen.insert(sample).second) << sample;
    }
  EXPECT_EQ(seen.size(), 36u);
  many.split_by = SplitBy::kDevice;
  EXPECT_NE(GatherPlan(many, 40).samples(1, 2, 0), alone.samples(1, 2, 0));
}

TEST(GatherPlan, RefusesSizesWhoseProductOverflows) {
  // 2^61 times 8 lanes is 2^64, which 64 bits hold as 0: the length was a division by it.
  EXPECT_ERROR(GatherPlan(on_cpu(PlanKind::kSplit, 8, int64_t{1} << 61), 10), UsageError,
               "batch_size_per_env", "2305843009213693952", "8 environments");
  EXPECT_ERROR(GatherPlan(on_cpu(PlanKind::kSplit, 2, int64_t{1} << 62), 10), UsageError,
               "batch_size_per_env");
  EXPECT_ERROR(GatherPlan(on_cpu(PlanKind::kOwn, 8, int64_t{1} << 61), 10), UsageError, "batch_size_per_env");
  EXPECT_ERROR(GatherPlan(on_cpu(PlanKind::kShared, 1, std::numeric_limits<int64_t>::max()), 2), UsageError,
               "batch_size_per_env");
  EXPECT_ERROR(GatherPlan(on_cpu(PlanKind::kSplit, 1, 1), int64_t{1} << 62), UsageError, "num_samples");
  // The largest that fit: one partial batch, and none behind it, whatever its number.
  const GatherPlan largest(on_cpu(PlanKind::kSplit, 8, int64_t{1} << 56, LastBatch::kKeep), 10);
  EXPECT_EQ(largest.length(), 1);
  EXPECT_EQ(largest.counts(0), (std::vector<int64_t>{2, 2, 1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(largest.samples(0, 0, std::numeric_limits<int64_t>::max()), std::vector<int64_t>());
  EXPECT_EQ(largest.samples(0, 0, -1), std::vector<int64_t>());
  EXPECT_ERROR(largest.counts(-1), UsageError, "batch", "-1");
}

TEST(GatherPlan, HasNoSamplesForALaneOrABatchThatItDoesNotHave) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max(), kLeast = std::numeric_limits<int64_t>::min();
  for (const PlanKind kind : {PlanKind::kSplit, PlanKind::kOwn, PlanKind::kShared}) {
    const LanePlan plan{.kind = kind, .num_samples = 29, .batch = 4, .group_lanes = 3};
    for (const int64_t batch : {kLeast, int64_t{-1}, int64_t{8}, int64_t{29}, int64_t{1} << 61, kMost})
      EXPECT_EQ(lane_range(plan, 0, batch).count, 0) << batch;
    for (const int64_t lane : {kLeast, int64_t{-1}, int64_t{0xffffffff}, int64_t{1} << 62, kMost})
      EXPECT_EQ(lane_range(plan, lane, 0).count, kind == PlanKind::kShared ? 4 : 0) << lane;
    EXPECT_EQ(lane_range(plan, 3, 0).count, kind == PlanKind::kSplit ? 0 : 4);
  }
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
  const GatherPlan plan(options, 5);  // the second batch has one sample per device: environments 0 and 2
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
