#include "espalier/core/machine/child_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "espalier/core/machine/interrupt.h"
#include "tests/support/temporary_folder.h"

namespace espalier {
namespace {

using Clock = std::chrono::steady_clock;

TEST(ChildProcess, GivesWhatAProgramWrote) {
  EXPECT_EQ(output_of({"sh", "-c", "echo one; echo two >&2; cat"}), "one\n");
  EXPECT_EQ(output_of({"sh", "-c", "head -c 100000 /dev/zero"}), std::string(100000, '\0'));
}

TEST(ChildProcess, GivesNothingOfOneThatFailedOrIsNotThere) {
  EXPECT_EQ(output_of({"sh", "-c", "echo one; exit 3"}), std::nullopt);
  EXPECT_EQ(output_of({"sh", "-c", "echo one; kill -9 $$"}), std::nullopt);
  EXPECT_EQ(output_of({"/nowhere/at/all"}), std::nullopt);
}

TEST(ChildProcess, TellsWhatAProgramThatFailedWroteToStandardError) {
  const ProgramOutput failed = run_program({"sh", "-c", "echo one; echo two >&2; exit 3"});
  EXPECT_FALSE(failed.succeeded);
  EXPECT_EQ(failed.output, "one\n");
  EXPECT_EQ(failed.errors, "two\n");
  // More than a pipe holds: the end of it is kept, and the program does not wait for us.
  const ProgramOutput loud = run_program({"sh", "-c", "head -c 300000 /dev/zero >&2; echo end >&2"});
  EXPECT_TRUE(loud.succeeded);
  EXPECT_TRUE(loud.errors.ends_with("end\n"));
  EXPECT_LT(loud.errors.size(), 100000u);
}

// A helper that lives on holds the pipe's other end.
TEST(ChildProcess, DoesNotWaitForWhatAProgramLeftBehind) {
  const auto began = Clock::now();
  EXPECT_EQ(output_of({"sh", "-c", "sleep 20 & echo one"}), "one\n");
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(10));
}

bool is_running(int process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t name_end = text.rfind(')');
  return name_end != text.npos && text[name_end + 2] != 'Z';
}

// The program itself, one in its group and one in a session of its own whose parent is gone; all deaf to
// SIGTERM.
TEST(ChildProcessDeathTest, EndsWithAllThatItStartedWhenToldToStop) {
  const support::TemporaryFolder folder;
  const std::string script =
      "trap '' TERM; cd " + folder.path().string() +
      "; (setsid sh -c 'trap \"\" TERM; echo $$ > a; while :; do sleep 1; done' &) "
      "; sh -c 'echo $$ > b; while :; do sleep 1; done' & "
      "while [ ! -s a ] || [ ! -s b ]; do sleep 0.02; done; echo $$ > c.new; mv c.new c; "
      "while :; do sleep 1; done";
  EXPECT_EXIT(
      {
        catch_interrupts();
        std::thread([&] {
          while (access((folder / "c").c_str(), F_OK) != 0) usleep(10'000);
          kill(getpid(), SIGTERM);
        }).detach();
        const auto began = Clock::now();
        try {
          output_of({"sh", "-c", script});
        } catch (const Interrupted& interrupted) {
          bool is_any_left = false;
          for (const char* name : {"a", "b", "c"}) {
            int process = 0;
            std::ifstream(folder / name) >> process;
            is_any_left = is_any_left || process == 0 || is_running(process);
          }
          const bool is_late = Clock::now() - began > std::chrono::seconds(20);
          std::exit(is_any_left || is_late ? 1 : interrupted.exit_code());
        }
      },
      ::testing::ExitedWithCode(143), "");
}

}  // namespace
}  // namespace espalier
