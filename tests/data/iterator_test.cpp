#include "espalier/data/iterator.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <set>

#include "espalier/core/error.h"
#include "tests/data/small_data.h"
#include "tests/support/message.h"
#include "tests/support/stacked_layout.h"

namespace espalier::data {
namespace {

using testing::image_spec;
using testing::small_dataset;

PlanOptions lanes(int64_t envs, int64_t batch, PlanKind kind = PlanKind::kSplit) {
  return {.kind = kind,
          .n_envs = envs,
          .batch_size_per_env = batch,
          .env_devices = std::vector<std::string>(static_cast<size_t>(envs), "cpu"),
          .seed = 5};
}

IteratorOptions kept(PlanOptions plan) {
  auto options = IteratorOptions::training(std::move(plan), at::kFloat);
  options.plan.last_batch = LastBatch::kKeep;
  return options;
}

class GatherIteratorTest : public ::testing::Test {
 protected:
  std::shared_ptr<const ResidentDataset> data_ =
      testing::resident(small_dataset({image_spec(6, 5, 3), {"depth", SampleType::kU16, 4, 4, 1}}, 50, 23));
};

TEST_F(GatherIteratorTest, RefusesABatchBeforeAnEpochBegan) {
  GatherIterator iterator(IteratorOptions::training(lanes(2, 4), at::kFloat), {data_}, Split::kTrain);
  EXPECT_ERROR(iterator.next(), UsageError, "begin_epoch");
  EXPECT_ERROR(iterator.next_stacked(), UsageError, "begin_epoch");
  EXPECT_ERROR(iterator.state(), UsageError, "begin_epoch");
}

TEST_F(GatherIteratorTest, OwnsWhatNextGives) {
  GatherIterator iterator(IteratorOptions::training(lanes(3, 4), at::kBFloat16), {data_}, Split::kTrain);
  iterator.begin_epoch(0);
  std::set<const void*> storages{data_->train.fields[0].values.storage().data(),
                                 data_->train.fields[1].values.storage().data()};
  size_t tensors = 2;
  std::vector<std::vector<EnvBatch>> kept_alive;
  while (auto batches = iterator.next()) {
    ASSERT_EQ(batches->size(), 3u);
    for (const EnvBatch& batch : *batches) {
      ASSERT_EQ(batch.fields.size(), 2u);
      EXPECT_EQ(batch.fields[0].sizes(), at::IntArrayRef({4, 3, 6, 5}));
      for (const at::Tensor& field : batch.fields) {
        EXPECT_TRUE(is_channels_last(field));
        EXPECT_EQ(field.stride(1), 1);
        EXPECT_EQ(field.scalar_type(), at::kBFloat16);
        storages.insert(field.storage().data());
        ++tensors;
      }
      storages.insert(batch.labels.storage().data());
      ++tensors;
    }
    kept_alive.push_back(std::move(*batches));
  }
  EXPECT_EQ(storages.size(), tensors);
  EXPECT_EQ(kept_alive.size(), 4u);
}

TEST_F(GatherIteratorTest, GivesTheSameSamplesOwnedAndStacked) {
  for (const PlanKind kind : {PlanKind::kSplit, PlanKind::kOwn}) {
    GatherIterator owned(kept(lanes(3, 4, kind)), {data_}, Split::kTrain);
    GatherIterator stacked(kept(lanes(3, 4, kind)), {data_}, Split::kTrain);
    owned.begin_epoch(2);
    stacked.begin_epoch(2);
    for (int64_t batch = 0; batch < owned.length(); ++batch) {
      const auto a = owned.next();
      const auto b = stacked.next_stacked();
      ASSERT_TRUE(a && b);
      const StackedBatch& all = b->front();
      EXPECT_TRUE(support::is_stacked_channels_last(all.fields[0]));
      int64_t with_samples = 0;
      for (size_t lane = 0; lane < 3; ++lane) {
        const int64_t count = all.counts[lane];
        with_samples += count > 0;
        const auto l = static_cast<int64_t>(lane);
        EXPECT_EQ(all.mask[l].sum().item<int64_t>(), count);
        if (count == 0) continue;
        const EnvBatch& mine = a->at(lane);
        EXPECT_EQ(mine.env, l);
        for (size_t f = 0; f < 2; ++f)
          EXPECT_TRUE(at::equal(all.fields[f][l].slice(0, 0, count), mine.fields[f]));
        EXPECT_TRUE(at::equal(all.labels[l].slice(0, 0, count), mine.labels));
        EXPECT_TRUE(all.labels[l].slice(0, count).eq(-100).all().item<bool>());
      }
      EXPECT_EQ(static_cast<int64_t>(a->size()), with_samples);
    }
    EXPECT_FALSE(owned.next());
    EXPECT_FALSE(stacked.next_stacked());
  }
}

TEST_F(GatherIteratorTest, DropsOrKeepsTheLastPartialBatch) {
  GatherIterator drop(IteratorOptions::training(lanes(3, 4), at::kFloat), {data_}, Split::kTrain);
  EXPECT_EQ(drop.length(), 4);
  GatherIterator keep(kept(lanes(3, 4)), {data_}, Split::kTrain);
  keep.begin_epoch(0);
  std::vector<size_t> envs;
  int64_t samples = 0;
  while (auto batches = keep.next()) {
    envs.push_back(batches->size());
    for (const EnvBatch& batch : *batches) samples += batch.labels.numel();
  }
  EXPECT_EQ(envs, (std::vector<size_t>{3, 3, 3, 3, 2}));  // two samples are left for three environments
  EXPECT_EQ(samples, 50);
}

TEST_F(GatherIteratorTest, EvaluatesInFileOrderEverySampleOnceWithoutAugmentation) {
  GatherIterator iterator(IteratorOptions::evaluation(lanes(3, 8), at::kFloat), {data_}, Split::kTest);
  iterator.begin_epoch(0);
  std::vector<int64_t> seen;
  while (auto batches = iterator.eval_stacked()) {
    const StackedBatch& batch = batches->front();
    EXPECT_EQ(batch.fields[0].size(0), 3);
    EXPECT_EQ(batch.fields[0].stride(0), 0) << "all lanes are one memory";
    const ResidentField& field = data_->test.fields[0];
    for (int64_t i = 0; i < batch.counts[0]; ++i) {
      const auto sample = static_cast<int64_t>(seen.size());
      const at::Tensor raw = field.values[sample].to(at::kDouble);
      const at::Tensor want = raw * field.affine[0].view({3, 1, 1}).to(at::kDouble) +
                              field.affine[1].view({3, 1, 1}).to(at::kDouble);
      EXPECT_TRUE(at::equal(batch.fields[0][2][i], want.to(at::kFloat)));
      EXPECT_EQ(batch.labels[1][i].item<int64_t>(), data_->test.labels[sample].item<int64_t>());
      seen.push_back(sample);
    }
  }
  EXPECT_EQ(seen.size(), 23u);
  EXPECT_ERROR(iterator.next_stacked(), UsageError, "eval_stacked");
}

TEST_F(GatherIteratorTest, GoesOnWhereItsStateWasTaken) {
  const auto collect = [](GatherIterator& iterator) {
    std::vector<at::Tensor> rest;
    while (auto batches = iterator.next_stacked()) rest.push_back(batches->front().fields[0].clone());
    return rest;
  };
  for (int64_t cut = 0; cut <= 4; ++cut) {
    GatherIterator whole(IteratorOptions::training(lanes(3, 4), at::kFloat), {data_}, Split::kTrain);
    whole.begin_epoch(7);
    for (int64_t i = 0; i < cut; ++i) whole.next_stacked();
    const IteratorState state = whole.state();
    EXPECT_EQ(state.epoch, 7u);
    EXPECT_EQ(state.batch, cut);
    const auto want = collect(whole);
    GatherIterator resumed(IteratorOptions::training(lanes(3, 4), at::kFloat), {data_}, Split::kTrain);
    for (int twice = 0; twice < 2; ++twice) {
      resumed.restore(state);
      const auto got = collect(resumed);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) EXPECT_TRUE(at::equal(got[i], want[i]));
    }
    // A cold start is something else: the test could fail.
    if (cut > 0 && !want.empty()) {
      resumed.begin_epoch(7);
      EXPECT_FALSE(at::equal(resumed.next_stacked()->front().fields[0], want[0]));
    }
  }
  GatherIterator iterator(IteratorOptions::training(lanes(3, 4), at::kFloat), {data_}, Split::kTrain);
  EXPECT_ERROR(iterator.restore({.epoch = 0, .batch = 5}), UsageError, "5", "4");
}

TEST_F(GatherIteratorTest, DiffersBetweenEpochsAndRepeatsWithinOne) {
  GatherIterator iterator(IteratorOptions::training(lanes(3, 4), at::kFloat), {data_}, Split::kTrain);
  iterator.begin_epoch(0);
  const at::Tensor first = iterator.next_stacked()->front().fields[0].clone();
  iterator.begin_epoch(1);
  EXPECT_FALSE(at::equal(iterator.next_stacked()->front().fields[0], first));
  iterator.begin_epoch(0);
  EXPECT_TRUE(at::equal(iterator.next_stacked()->front().fields[0], first));
}

TEST_F(GatherIteratorTest, GivesAProcessItsPartOfTheWholeJob) {
  GatherIterator whole(IteratorOptions::training(lanes(4, 3), at::kFloat), {data_}, Split::kTrain);
  auto part_options = IteratorOptions::training(lanes(4, 3), at::kFloat);
  part_options.envs = {1, 3};
  GatherIterator part(part_options, {data_}, Split::kTrain);
  whole.begin_epoch(0);
  part.begin_epoch(0);
  while (auto all = whole.next_stacked()) {
    const auto mine = part.next_stacked();
    EXPECT_EQ(mine->front().envs, (std::vector<int64_t>{1, 3}));
    EXPECT_TRUE(at::equal(mine->front().fields[0], all->front().fields[0].slice(0, 1, 4, 2)));
  }
  part_options.envs = {1, 4};
  EXPECT_ERROR(GatherIterator(part_options, {data_}, Split::kTrain), UsageError, "4");
}

TEST_F(GatherIteratorTest, YieldsNothingFromAnEmptySplit) {
  const auto empty = testing::resident(small_dataset({image_spec()}, 10, 0));
  GatherIterator iterator(IteratorOptions::evaluation(lanes(2, 4), at::kFloat), {empty}, Split::kTest);
  iterator.begin_epoch(0);
  EXPECT_EQ(iterator.length(), 0);
  EXPECT_FALSE(iterator.eval_stacked());
  EXPECT_FALSE(iterator.next());
}

TEST_F(GatherIteratorTest, NamesTheDeviceThatHasNoDataset) {
  PlanOptions plan = lanes(1, 4);
  EXPECT_ERROR(GatherIterator(IteratorOptions::training(plan, at::kFloat), {}, Split::kTrain), UsageError,
               "dataset");
}

TEST_F(GatherIteratorTest, NamesTheRingsCapacityWhenBatchesAreHoarded) {
  GatherIterator iterator(IteratorOptions::training(lanes(1, 4), at::kFloat), {data_}, Split::kTrain);
  iterator.begin_epoch(0);
  std::vector<std::vector<StackedBatch>> hoard;
  for (int i = 0; i < 3; ++i) hoard.push_back(std::move(*iterator.next_stacked()));
  EXPECT_ERROR(iterator.next_stacked(), Error, "all 3 batches");
}

}  // namespace
}  // namespace espalier::data
