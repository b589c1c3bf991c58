#include "espalier/run/archive.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/thread_ranks.h"

namespace espalier::run {
namespace {

using Json = nlohmann::ordered_json;

StateArchive archive_of(const Json& values) {
  auto checkpoint = std::make_shared<Checkpoint>();
  checkpoint->path = "run/checkpoints/a";
  return {checkpoint, values};
}

template <class Value>
Value read(const Json& json) {
  Value value{};
  archive_of({{"v", json}}).value("v", value);
  return value;
}

TEST(StateArchive, BringsEveryNumberBack) {
  StateArchive saved;
  std::vector<double> doubles{1.5, -std::numeric_limits<double>::infinity(),
                              std::numeric_limits<double>::quiet_NaN()};
  int64_t least = std::numeric_limits<int64_t>::min();
  uint64_t most = std::numeric_limits<uint64_t>::max();
  saved.value("doubles", doubles);
  saved.value("least", least);
  saved.value("most", most);
  StateArchive again = archive_of(saved.values());
  std::vector<double> doubles_again;
  int64_t least_again = 0;
  uint64_t most_again = 0;
  again.value("doubles", doubles_again);
  again.value("least", least_again);
  again.value("most", most_again);
  ASSERT_EQ(doubles_again.size(), 3u);
  EXPECT_EQ(std::memcmp(doubles_again.data(), doubles.data(), 3 * sizeof(double)), 0);
  EXPECT_EQ(least_again, least);
  EXPECT_EQ(most_again, most);
}

TEST(StateArchive, RefusesAValueOfAnotherKindByName) {
  for (const Json& json :
       {Json("7"), Json(1.5), Json(1e300), Json(18446744073709551615u), Json(), Json::array()})
    EXPECT_ERROR(read<int64_t>(json), Error, "run/checkpoints/a", "'v'", "not of its kind");
  EXPECT_ERROR(read<int32_t>(2147483648), Error, "'v'");
  EXPECT_ERROR(read<uint64_t>(-1), Error, "'v'");
  for (const char* bits : {"", "x", "12zz", "7ff8000000000000z", "-ff8000000000000", "7ff800000000000"})
    EXPECT_ERROR(read<double>(bits), Error, "'v'", "not of its kind");
  for (const Json& json : {Json("7ff8"), Json(1), Json({{"0", 1}}), Json({"1"})})
    EXPECT_ERROR(read<std::vector<double>>(json), Error, "'v'", "not of its kind");
  EXPECT_ERROR(read<bool>(1), Error, "'v'");
}

TEST(StateArchive, RefusesAListOfAnotherLength) {
  std::vector<double> live{1, 2, 3};
  EXPECT_ERROR(archive_of({{"v", {1, 2}}}).list("v", live), Error, "run/checkpoints/a", "'v'", "a list of 3",
               "one of 2");
  EXPECT_EQ(live, (std::vector<double>{1, 2, 3}));
  archive_of({{"v", {4, 5, 6}}}).list("v", live);
  EXPECT_EQ(live, (std::vector<double>{4, 5, 6}));
}

// Two shards that deal six lanes out as `envs` says, each value its lane's number.
struct Dealt {
  explicit Dealt(std::vector<std::vector<int64_t>> envs) : envs(std::move(envs)) {
    for (const auto& own : this->envs) {
      rows.push_back(at::tensor(own, at::kFloat).unsqueeze(1).repeat({1, 2}));
      columns.push_back(10 * at::tensor(own, at::kDouble).unsqueeze(0).repeat({3, 1}));
      std::vector<double> values;
      for (const int64_t env : own)
        values.insert(values.end(), {static_cast<double>(env), static_cast<double>(env) + 0.5});
      lists.push_back(values);
    }
  }

  void visit(StateArchive& archive) {
    for (size_t s = 0; s < envs.size(); ++s) {
      const LaneShare share{envs[s], 6};
      archive.with_lanes(share, [&] {
        archive.value("epoch", epoch);
        archive.lane_tensor("rows", rows[s]);
        archive.lane_tensor("columns", columns[s], 1);
        archive.lane_list("list", lists[s]);
        for (size_t i = 0; i < envs[s].size(); ++i)
          archive.part(archive.lane_name(static_cast<int64_t>(i)),
                       [&] { archive.value("own", lists[s][2 * i]); });
      });
    }
  }

  std::vector<std::vector<int64_t>> envs;
  int64_t epoch = 3;
  std::vector<at::Tensor> rows;     // [lanes,2] each
  std::vector<at::Tensor> columns;  // [3,lanes] each
  std::vector<std::vector<double>> lists;
};

TEST(StateArchive, SavesTheSameHoweverLanesAreDealtOut) {
  StateArchive one, two;
  Dealt({{0, 1, 2, 3, 4, 5}}).visit(one);
  Dealt({{0, 2, 4}, {1, 3, 5}}).visit(two);
  EXPECT_EQ(one.values(), two.values());
  EXPECT_EQ(one.values()["lane3.own"], 3.0);
  ASSERT_EQ(one.tensors().size(), two.tensors().size());
  for (size_t i = 0; i < one.tensors().size(); ++i) {
    EXPECT_EQ(one.tensors()[i].first, two.tensors()[i].first);
    EXPECT_TRUE(at::equal(one.tensors()[i].second, two.tensors()[i].second)) << one.tensors()[i].first;
  }
}

TEST(StateArchive, GivesEveryShardItsPartOfALaneList) {
  StateArchive saved;
  Dealt({{0, 1, 2, 3, 4, 5}}).visit(saved);
  StateArchive again = archive_of(saved.values());
  std::vector<double> list{0, 0, 0, 0};
  const LaneShare share{{4, 1}, 6};
  again.with_lanes(share, [&] { again.lane_list("list", list); });
  EXPECT_EQ(list, (std::vector<double>{4, 4.5, 1, 1.5}));
  std::vector<double> shorter{0, 0};
  EXPECT_ERROR(again.with_lanes(share, [&] { again.lane_list("list", shorter); }), Error, "'list'",
               "a list of 6", "one of 12");
}

// Where every process has all lanes, rank 0 has all that is to be saved.
TEST(StateArchive, SendsNothingOfLanesThatEveryProcessHas) {
  StateArchive alone;
  Dealt({{0, 1, 2, 3, 4, 5}}).visit(alone);
  espalier::testing::as_ranks(2, [&](ranks::World& world) {
    Dealt lanes({{0, 1, 2, 3, 4, 5}});
    lanes.rows[0] = at::zeros({6, 10'000});
    StateArchive archive;
    lanes.visit(archive);
    archive.gather(world);
    EXPECT_LT(world.bytes_moved(), 1000);
    if (!world.leads()) return;
    EXPECT_EQ(archive.values(), alone.values());
    EXPECT_EQ(archive.tensors().size(), alone.tensors().size());
  });
}

TEST(StateArchive, RefusesWhatOneShardNamesTwice) {
  StateArchive archive;
  const LaneShare share{{0}, 2};
  int64_t value = 1;
  EXPECT_ERROR(archive.with_lanes(share,
                                  [&] {
                                    archive.value("epoch", value);
                                    archive.value("epoch", value);
                                  }),
               Error, "'epoch'", "named twice");
}

TEST(StateArchive, RefusesASlotsStateThatIsDamaged) {
  Json json = SlotState{};
  EXPECT_EQ(read<SlotState>(json).num_seeds, 0);
  for (const char* key :
       {"flags", "blueprint", "ramp_steps", "ramp_done", "age_steps", "steps_in_stage", "num_seeds"}) {
    for (const Json& value : {Json("1"), Json(1.5), Json(1e300), Json(99999999999999), Json()}) {
      Json damaged = json;
      damaged[key] = value;
      EXPECT_ERROR(read<SlotState>(damaged), Error, "'v'", "not of its kind");
    }
  }
}

}  // namespace
}  // namespace espalier::run
