#include "espalier/tensor/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/support/threads.h"

namespace espalier {
namespace {

using testing::NumThreads;

// Calls of a body, in the order of their first index.
std::set<std::pair<int64_t, int64_t>> calls_of(int64_t begin, int64_t end, int64_t grain) {
  std::mutex mutex;
  std::set<std::pair<int64_t, int64_t>> calls;
  parallel_for(begin, end, grain, [&](int64_t first, int64_t last) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(calls.emplace(first, last).second);
  });
  return calls;
}

TEST(ParallelFor, GivesEveryIndexToOneCall) {
  for (const int threads : {1, 2, 3, 5})
    for (const int64_t begin : {0, 7})
      for (const int64_t count : {1, 2, 31, 32, 33, 1009})
        for (const int64_t grain : {1, 3, 32, 2000}) {
          const NumThreads while_called(threads);
          int64_t next = begin;
          const auto calls = calls_of(begin, begin + count, grain);
          for (const auto& [first, last] : calls) {
            EXPECT_EQ(first, next);
            EXPECT_LT(first, last);
            next = last;
          }
          EXPECT_EQ(next, begin + count);
          EXPECT_LE(std::ssize(calls), std::min<int64_t>(threads, (count + grain - 1) / grain));
        }
}

TEST(ParallelFor, CallsNothingForNoIndices) {
  const NumThreads while_called(3);
  EXPECT_TRUE(calls_of(0, 0, 1).empty());
  EXPECT_TRUE(calls_of(5, 5, 1).empty());
  EXPECT_TRUE(calls_of(5, 4, 1).empty());
}

// Which thread takes an index does not depend on how busy the machine is.
TEST(ParallelFor, UsesAsManyThreadsAsTorchHas) {
  for (const int threads : {1, 2, 3, 5}) {
    const NumThreads while_called(threads);
    std::mutex mutex;
    std::set<std::thread::id> used;
    parallel_for(0, 1000, 1, [&](int64_t, int64_t) {
      const std::lock_guard lock(mutex);
      used.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(std::ssize(used), ESPALIER_WITH_OPENMP ? threads : 1);
    EXPECT_TRUE(used.contains(std::this_thread::get_id()));
  }
}

TEST(ParallelFor, IsAPlainLoopInsideAnother) {
  const NumThreads while_called(3);
  std::atomic<int64_t> outer_calls = 0, inner_calls = 0, indices = 0;
  parallel_for(0, 6, 1, [&](int64_t first, int64_t last) {
    ++outer_calls;
    const auto own = std::this_thread::get_id();
    for (int64_t i = first; i < last; ++i)
      parallel_for(0, 1000, 1, [&](int64_t inner_first, int64_t inner_last) {
        ++inner_calls;
        indices += inner_last - inner_first;
        EXPECT_EQ(std::this_thread::get_id(), own);
      });
  });
  EXPECT_EQ(outer_calls, ESPALIER_WITH_OPENMP ? 3 : 1);
  EXPECT_EQ(inner_calls, 6);
  EXPECT_EQ(indices, 6000);
}

TEST(ParallelFor, HandsOnWhatABodyThrowsOnceAllCallsHaveEnded) {
  const NumThreads while_called(4);
  for (int64_t thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int64_t> done = 0;
    try {
      parallel_for(0, 4, 1, [&](int64_t first, int64_t last) {
        if (first <= thrower && thrower < last) throw std::runtime_error(std::to_string(thrower));
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
        done += last - first;
      });
      ADD_FAILURE() << "did not throw";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(error.what(), std::to_string(thrower));
    }
    EXPECT_EQ(done, ESPALIER_WITH_OPENMP ? 3 : 0);
  }
  EXPECT_EQ(std::ssize(calls_of(0, 4, 1)), ESPALIER_WITH_OPENMP ? 4 : 1) << "as before";
}

TEST(ParallelFor, IsUsedByThreadsThatTorchDidNotMake) {
  const NumThreads while_called(2);
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum = 0;
  for (int i = 0; i < 3; ++i)
    callers.emplace_back([&] {
      for (int round = 0; round < 50; ++round)
        parallel_for(0, 100, 1, [&](int64_t first, int64_t last) { sum += last - first; });
    });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sum, 3 * 50 * 100);
}

// Two would have threads of their own each, and know nothing of one another's number of them.
TEST(ParallelFor, LivesInAProcessWithOneRuntimeOfThreads) {
  std::set<std::string> runtimes;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    for (const char* name : {"/libgomp", "/libomp", "/libiomp"})
      if (line.find(name) != std::string::npos) runtimes.insert(line.substr(line.find('/')));
  EXPECT_LE(runtimes.size(), 1u) << ::testing::PrintToString(runtimes);
}

}  // namespace
}  // namespace espalier
