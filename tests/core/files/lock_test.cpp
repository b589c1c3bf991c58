#include "espalier/core/files/lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "espalier/core/error.h"

namespace espalier {
namespace {

class LockFileTest : public testing::Test {
 protected:
  ~LockFileTest() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "espalier_lock_" + std::to_string(getpid());
};

TEST_F(LockFileTest, IsHeldOnceAndNamesItsHolder) {
  EXPECT_FALSE(lock_holder(path_));
  std::optional<LockFile> lock;
  lock.emplace(path_, "run directory 'r'");
  const auto holder = lock_holder(path_);
  ASSERT_TRUE(holder);
  EXPECT_NE(holder->find("process " + std::to_string(getpid())), std::string::npos) << *holder;
  try {
    const LockFile second(path_, "run directory 'r'");
    FAIL() << "was taken twice";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_EQ(text.rfind("run directory 'r': process ", 0), 0u) << text;
  }
  lock.reset();
  EXPECT_FALSE(lock_holder(path_));
  const LockFile again(path_, "run directory 'r'");
}

TEST_F(LockFileTest, OfAKilledProcessIsTakenOver) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const LockFile lock(path_, "run");
    [[maybe_unused]] const auto written = write(ready[1], "x", 1);
    pause();
    _exit(0);
  }
  char byte;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_TRUE(lock_holder(path_));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(lock_holder(path_));
  EXPECT_NO_THROW(LockFile(path_, "run"));
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace espalier
