#include "espalier/ranks/heartbeat.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/ranks/world.h"
#include "tests/support/message.h"

namespace espalier::ranks {
namespace {

using namespace std::chrono_literals;

// No machine is so busy that a thread does not run for so long.
constexpr std::chrono::milliseconds kGenerous = 30s;

// Ranks of one process, over one store in its memory.
class Heartbeats : public ::testing::Test {
 protected:
  std::unique_ptr<Heartbeat> rank(int64_t number, std::promise<std::string>& ended,
                                  std::chrono::milliseconds limit = kGenerous) {
    return std::make_unique<Heartbeat>(
        store_, HeartbeatOptions{.rank = number,
                                 .size = 2,
                                 .limit = limit,
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
  const auto beats = rank(0, first_, 1s);
  std::future<std::string> told = first_.get_future();
  ASSERT_EQ(told.wait_for(60s), std::future_status::ready);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 1s) << "too soon";
  const std::string sentence = told.get();
  EXPECT_NE(sentence.find("rank 1 (process 4711 on node7) has not been heard from for 1 s"), sentence.npos)
      << sentence;
}

TEST_F(Heartbeats, LetsRanksThatBeatWorkForAsLongAsTheyLike) {
  auto other = std::async(std::launch::async, [&] { return rank(1, second_, 3s); });
  const auto beats = rank(0, first_, 3s);
  const auto others = other.get();
  EXPECT_EQ(first_.get_future().wait_for(7s), std::future_status::timeout) << "over twice the limit";
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

TEST_F(Heartbeats, SaysWhatToDoWhereAMessageFailedThoughAllAreThere) {
  auto other = std::async(std::launch::async, [&] { return rank(1, second_, 3s); });
  const auto beats = rank(0, first_, 3s);
  const auto others = other.get();
  EXPECT_ERROR(beats->collective_failed("Connection reset"), Error, "rank 0 (process ",
               "though all of them are there: Connection reset; check the network", "last checkpoint");
}

TEST_F(Heartbeats, SaysWhoDidNotComeToBegin) {
  EXPECT_ERROR(rank(0, first_, 500ms), Error, "rank 1 did not come within 0.5 s");
}

TEST_F(Heartbeats, SaysWhyAnotherRankDidNotBegin) {
  store_->set("espalier/fault", "rank 0 failed: the disk is full");
  const auto began = std::chrono::steady_clock::now();
  EXPECT_ERROR(rank(1, second_), Error, "rank 0 failed: the disk is full");
  EXPECT_LT(std::chrono::steady_clock::now() - began, kGenerous) << "only when the limit was over";
}

// Of a process that is stopped: what asks it waits, as c10d does, without a limit.
class SilentStore : public c10d::HashStore {
 public:
  void fall_silent() { is_silent_ = true; }
  void answer() {
    {
      const std::lock_guard lock(mutex_);
      is_silent_ = false;
    }
    changed_.notify_all();
  }

  c10::intrusive_ptr<Store> clone() override {
    wait_for_answer();
    return HashStore::clone();
  }
  std::vector<uint8_t> get(const std::string& key) override {
    wait_for_answer();
    return HashStore::get(key);
  }
  int64_t add(const std::string& key, int64_t value) override {
    wait_for_answer();
    return HashStore::add(key, value);
  }
  bool check(const std::vector<std::string>& keys) override {
    wait_for_answer();
    return HashStore::check(keys);
  }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    wait_for_answer();
    return HashStore::compareSet(key, expected, desired);
  }

 private:
  void wait_for_answer() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !is_silent_; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_silent_ = false;
};

class SilentKeeper : public Heartbeats {
 protected:
  SilentKeeper() { store_ = silent_; }

  // What this rank ends with while `work` waits for the store, which answers again afterwards.
  std::string said_while(const std::function<void()>& work) {
    std::future<void> waiting = std::async(std::launch::async, work);
    std::future<std::string> told = second_.get_future();
    const bool is_told = told.wait_for(60s) == std::future_status::ready;
    silent_->answer();
    waiting.get();
    return is_told ? told.get() : "nothing: it would wait for ever";
  }

  c10::intrusive_ptr<SilentStore> silent_ = c10::make_intrusive<SilentStore>();
};

constexpr const char* kSilent = "rank 0, which keeps the store, has not answered for 1 s";

TEST_F(SilentKeeper, IsNamedBeforeTheFirstBeat) {
  leave_silent(0);
  silent_->fall_silent();
  EXPECT_EQ(said_while([&] { rank(1, second_, 1s); }), kSilent);
}

TEST_F(SilentKeeper, IsNamedWhereAllWorkIsDone) {
  leave_silent(0);
  const auto beats = rank(1, second_, 1s);
  silent_->fall_silent();
  EXPECT_EQ(said_while([&] { beats->finish(); }), kSilent);
}

TEST_F(SilentKeeper, DoesNotHideWhyThisRankFailed) {
  leave_silent(0);
  const auto beats = rank(1, second_, 1s);
  silent_->fall_silent();
  EXPECT_EQ(said_while([&] { EXPECT_TRUE(beats->tell_failure("the disk is full")); }), "the disk is full");
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
