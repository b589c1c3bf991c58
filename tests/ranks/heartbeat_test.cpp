#include "espalier/ranks/heartbeat.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "espalier/core/error.h"
#include "espalier/ranks/world.h"
#include "tests/support/message.h"

namespace espalier::ranks {
namespace {

using namespace std::chrono_literals;

// Ranks of one process, over one store in its memory.
class Heartbeats : public ::testing::Test {
 protected:
  std::unique_ptr<Heartbeat> rank(int64_t number, std::promise<std::string>& ended) {
    return std::make_unique<Heartbeat>(
        store_, HeartbeatOptions{.rank = number,
                                 .size = 2,
                                 .limit = 400ms,
                                 .store_keeper = "rank 0, which keeps the store,",
                                 .keeps_store = number == 0,
                                 .ended = [&ended](const std::string& text) { ended.set_value(text); }});
  }
  // A rank that came, and does not beat any more.
  void leave_silent(int64_t number) {
    store_->set("espalier/name/" + std::to_string(number), "process 4711 on node7");
    store_->set("espalier/beat/" + std::to_string(number), "0");
  }

  c10::intrusive_ptr<c10d::Store> store_ = c10::make_intrusive<c10d::HashStore>();
  std::promise<std::string> first_, second_;
};

TEST_F(Heartbeats, NamesARankThatIsSilentBeyondTheLimit) {
  leave_silent(1);
  const auto began = std::chrono::steady_clock::now();
  const auto beats = rank(0, first_);
  std::future<std::string> told = first_.get_future();
  ASSERT_EQ(told.wait_for(20s), std::future_status::ready);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 400ms) << "too soon";
  const std::string sentence = told.get();
  EXPECT_NE(sentence.find("rank 1 (process 4711 on node7) has not been heard from for 0.4 s"), sentence.npos)
      << sentence;
}

TEST_F(Heartbeats, LetsRanksThatBeatWorkForAsLongAsTheyLike) {
  auto other = std::async(std::launch::async, [&] { return rank(1, second_); });
  const auto beats = rank(0, first_);
  const auto others = other.get();
  EXPECT_EQ(first_.get_future().wait_for(1500ms), std::future_status::timeout);
  EXPECT_EQ(second_.get_future().wait_for(0ms), std::future_status::timeout);
  auto done = std::async(std::launch::async, [&] { others->finish(); });
  beats->finish();
  done.get();
}

TEST_F(Heartbeats, NamesWhoeverIsGoneWhereACollectiveFailed) {
  leave_silent(1);
  const auto beats = rank(0, first_);
  EXPECT_ERROR(beats->collective_failed("Connection closed by peer"), Error, "rank 1", "node7");
}

TEST_F(Heartbeats, TellsTheOthersWhyARankFailed) {
  auto other = std::async(std::launch::async, [&] { return rank(1, second_); });
  const auto beats = rank(0, first_);
  const auto others = other.get();
  EXPECT_TRUE(others->tell_failure("the disk is full"));
  EXPECT_EQ(first_.get_future().get(), "rank 1 failed: the disk is full");
}

TEST_F(Heartbeats, DoesNotRepeatAReasonThatAnotherRankGave) {
  auto other = std::async(std::launch::async, [&] { return rank(1, second_); });
  const auto beats = rank(0, first_);
  const auto others = other.get();
  auto later = std::async(std::launch::async, [&] { return others->tell_failure("--epochs 0: want 1"); });
  const bool is_news = beats->tell_failure("--epochs 0: want 1");
  EXPECT_NE(is_news, later.get()) << "one of them says it";
}

TEST(World, OfOneDoesNothing) {
  World& world = World::alone();
  EXPECT_TRUE(world.is_alone() && world.leads());
  EXPECT_EQ(world.largest(7), 7);
  EXPECT_EQ(world.sum(7), 7);
  EXPECT_EQ(world.gather(std::string_view("own")), std::vector<std::string>{"own"});
  EXPECT_EQ(world.all_gather("own"), std::vector<std::string>{"own"});
  std::string text = "kept";
  world.broadcast(text);
  EXPECT_EQ(text, "kept");
  EXPECT_EQ(world.bytes_moved(), 0);
  world.finish();
}

}  // namespace
}  // namespace espalier::ranks
