#include "espalier/core/machine/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>
#include <vector>

namespace espalier {
namespace {

// Each in a process of its own: handlers and the flag are the process's.

TEST(InterruptDeathTest, MakesTheFirstSignalAnException) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        throw_if_interrupted();
        std::raise(SIGTERM);
        try {
          throw_if_interrupted();
        } catch (const Interrupted& interrupted) {
          std::exit(pending_interrupt() == SIGTERM ? interrupted.exit_code() : 1);
        }
      },
      ::testing::ExitedWithCode(143), "stopping");
}

// As `timeout` sends them: to the process, and then to its group.
TEST(InterruptDeathTest, TakesSignalsWithinASecondForOne) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        for (const int signal : {SIGTERM, SIGTERM, SIGINT, SIGUSR1, SIGTERM}) {
          std::raise(signal);
          usleep(500);
        }
        std::exit(pending_interrupt() == SIGTERM ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "^espalier: stopping; .*after a second[^\n]*\n$");
}

// Whatever thread they reach, and whichever handler they interrupt.
TEST(InterruptDeathTest, TakesSignalsOfManyThreadsForOne) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; ++i)
          threads.emplace_back([i] {
            for (int n = 0; n < 20; ++n) std::raise(i % 2 == 0 ? SIGTERM : SIGINT);
          });
        for (std::thread& thread : threads) thread.join();
        std::exit(pending_interrupt() != 0 ? 7 : 1);
      },
      ::testing::ExitedWithCode(7), "^espalier: stopping[^\n]*\n$");
}

TEST(InterruptDeathTest, EndsTheProcessAtASignalAfterASecond) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        std::raise(SIGINT);
        usleep(1'050'000);
        std::raise(SIGINT);
        std::exit(1);
      },
      ::testing::ExitedWithCode(130), "stopping");
}

TEST(InterruptDeathTest, LetsTheSecondSignalActALastTimeAndTheFirstBeSilent) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        set_last_act([] { [[maybe_unused]] const auto written = write(STDERR_FILENO, "given back", 10); });
        std::raise(SIGINT);
        std::raise(SIGINT);
        usleep(1'050'000);
        std::raise(SIGINT);
        std::exit(1);
      },
      ::testing::ExitedWithCode(130), "^given back$");
}

TEST(InterruptDeathTest, KeepsASignalIgnoredThatWasIgnoredBefore) {
  EXPECT_EXIT(
      {
        std::signal(SIGINT, SIG_IGN);
        catch_interrupts();
        std::raise(SIGINT);
        std::exit(pending_interrupt());
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace espalier
