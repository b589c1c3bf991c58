#include "espalier/core/interrupt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

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

TEST(InterruptDeathTest, EndsTheProcessAtTheSecondSignal) {
  EXPECT_EXIT(
      {
        catch_interrupts();
        std::raise(SIGINT);
        std::raise(SIGINT);
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
