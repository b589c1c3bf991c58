#include "espalier/data/cache.h"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "espalier/core/error.h"
#include "tests/support/temporary_folder.h"

namespace espalier::data {
namespace {

namespace fs = std::filesystem;

DatasetCache::Entry empty_entry() {
  return std::make_shared<ResidentDataset>();
}

class DatasetCacheTest : public ::testing::Test {
 protected:
  void SetUp() override { cache_.clear(); }
  void TearDown() override { cache_.clear(); }
  DatasetCache& cache_ = DatasetCache::instance();
};

TEST_F(DatasetCacheTest, LoadsOnceHoweverManyThreadsAsk) {
  std::atomic<int> loads{0};
  const auto load = [&] {
    ++loads;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return empty_entry();
  };
  std::vector<DatasetCache::Entry> entries(16);
  {
    std::vector<std::jthread> threads;
    for (auto& entry : entries) threads.emplace_back([&] { entry = cache_.ensure({.source = "a"}, load); });
  }
  EXPECT_EQ(loads, 1);
  for (const auto& entry : entries) EXPECT_EQ(entry, entries.front());
}

TEST_F(DatasetCacheTest, LoadsAgainWhatWasCleared) {
  const auto first = cache_.ensure({.source = "a"}, empty_entry);
  EXPECT_EQ(cache_.ensure({.source = "a"}, empty_entry), first);
  EXPECT_EQ(cache_.clear({.source = "a"}), 1);
  const auto second = cache_.ensure({.source = "a"}, empty_entry);
  EXPECT_NE(second, first);
  EXPECT_EQ(cache_.ensure({.source = "a"}, empty_entry), second);
}

TEST_F(DatasetCacheTest, KeepsNothingOfALoadThatFailed) {
  EXPECT_THROW(cache_.ensure({.source = "a"}, []() -> DatasetCache::Entry { fail("no"); }), Error);
  EXPECT_TRUE(cache_.ensure({.source = "a"}, empty_entry));
}

TEST_F(DatasetCacheTest, ClearsWhatMatchesAndCountsIt) {
  cache_.ensure({.source = "a", .device = "cpu"}, empty_entry);
  cache_.ensure({.source = "a", .device = "cuda:0"}, empty_entry);
  cache_.ensure({.source = "b", .device = "cpu"}, empty_entry);
  EXPECT_EQ(cache_.clear({.source = "a", .device = "cuda:0"}), 1);
  EXPECT_EQ(cache_.clear({.source = "c"}), 0);
  EXPECT_EQ(cache_.clear({.device = "cpu"}), 2);
  EXPECT_EQ(cache_.clear(), 0);
}

TEST_F(DatasetCacheTest, SharesOneEntryBetweenSpellingsOfOnePlaceAlone) {
  const support::TemporaryFolder folder;
  const fs::path& root = folder.path();
  fs::create_directories(root / "a");
  fs::create_directories(root / "b");
  const fs::path before = fs::current_path();
  fs::current_path(root);
  const auto key = [](const std::string& data, const std::string& device) {
    SourceConfig source;
    source.data = data;
    return dataset_key(source, {}, parse_device(device));
  };
  EXPECT_EQ(key("folder:./a", "cpu"), key("folder:" + (root / "a").string(), "cpu"));
  EXPECT_EQ(key("folder:a/../a/", "cpu"), key("folder:a", "cpu"));
  EXPECT_NE(key("folder:a", "cpu"), key("folder:b", "cpu"));
  EXPECT_EQ(key("folder:a", "cuda"), key("folder:a", "cuda:0"));
  EXPECT_NE(key("folder:a", "cuda:1"), key("folder:a", "cuda:0"));
  fs::current_path(before);
}

TEST_F(DatasetCacheTest, ToldApartByEveryOptionThatChangesWhatIsStored) {
  const SourceConfig source;
  const DeviceName cpu;
  const DatasetKey plain = dataset_key(source, {}, cpu);
  for (const auto& change : std::vector<std::function<void(ResidentConfig&)>>{
           [](auto& o) { o.validation = 5; }, [](auto& o) { o.validation_seed = 5; },
           [](auto& o) { o.store = Stored::kFloat32; },
           [](auto& o) { o.memory_format = MemoryFormat::kContiguous; },
           [](auto& o) { o.residency = WantedResidency::kHost; }}) {
    ResidentConfig options;
    change(options);
    EXPECT_NE(dataset_key(source, options, cpu), plain);
  }
  SourceConfig seeded;
  seeded.data_seed = 1;
  EXPECT_NE(dataset_key(seeded, {}, cpu), plain);
}

TEST_F(DatasetCacheTest, LoadsTheEmbeddedDataset) {
  SourceConfig source;
  source.synthetic_train = 50;
  source.synthetic_test = 10;
  const auto data = cache_.ensure(source, {}, DeviceName{});
  EXPECT_EQ(data->train.num_samples(), 45);
  EXPECT_EQ(cache_.ensure(source, {}, DeviceName{}), data);
}

}  // namespace
}  // namespace espalier::data
