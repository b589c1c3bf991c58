#include "espalier/core/files/atomic.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "espalier/core/error.h"
#include "tests/support/temporary_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

class AtomicFileTest : public testing::Test {
 protected:
  int64_t num_files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }

  static std::string read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static std::string message_for(const std::string& path) {
    try {
      AtomicFile file(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  support::TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
  std::string path_ = (folder_ / "out").string();
};

TEST_F(AtomicFileTest, AppearsWholeAtCommitAndNotBefore) {
  AtomicFile file(path_);
  file.write("one ");
  file.write("two");
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_EQ(file.size_bytes(), 7);
  file.commit();
  EXPECT_EQ(read(path_), "one two");
  EXPECT_EQ(num_files(), 1);
}

TEST_F(AtomicFileTest, LeavesNothingBehindWithoutCommit) {
  {
    AtomicFile file(path_);
    file.write("half");
  }
  EXPECT_EQ(num_files(), 0);
}

TEST_F(AtomicFileTest, KeepsTheOldFileWhenTheWriterThrows) {
  std::ofstream(path_) << "old";
  EXPECT_THROW(
      {
        AtomicFile file(path_);
        file.write("new");
        throw std::runtime_error("the writer fails");
      },
      std::runtime_error);
  EXPECT_EQ(read(path_), "old");
  EXPECT_EQ(num_files(), 1);
}

TEST_F(AtomicFileTest, ReplacesTheOldFile) {
  std::ofstream(path_) << "a longer old text";
  AtomicFile file(path_);
  file.write("new");
  EXPECT_EQ(read(path_), "a longer old text");
  file.commit();
  EXPECT_EQ(read(path_), "new");
  EXPECT_EQ(num_files(), 1);
}

TEST_F(AtomicFileTest, LeavesNothingBehindWhenTheNameWasTakenMeanwhile) {
  {
    AtomicFile file(path_);
    fs::create_directory(path_);
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_EQ(num_files(), 1);
  EXPECT_TRUE(fs::is_directory(path_));
}

TEST_F(AtomicFileTest, FollowsALinkAndKeepsIt) {
  const auto real = (folder_ / "real").string();
  std::ofstream(real) << "old";
  fs::create_symlink("real", path_);
  AtomicFile file(path_);
  file.write("new");
  file.commit();
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(read(real), "new");
}

TEST_F(AtomicFileTest, LeavesNothingBehindWhenTheProcessIsKilled) {
  const int nameless = open(folder_.c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (nameless < 0) GTEST_SKIP() << "this file system has no nameless files";
  close(nameless);
  const pid_t child = fork();
  if (child == 0) {
    AtomicFile file(path_);
    file.write("half");
    raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(num_files(), 0);
}

TEST_F(AtomicFileTest, SaysWhyAWriteFailedAndLeavesNothing) {
  // A file size limit stands for a full disk: write() fails half way in the same manner.
  struct rlimit before {};
  getrlimit(RLIMIT_FSIZE, &before);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  std::string message = "no error";
  try {
    AtomicFile file(path_);
    file.write(std::string(5000, 'x'));
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(message, path_ + ": cannot be written after 1000 bytes: File too large");
  EXPECT_EQ(num_files(), 0);
}

TEST_F(AtomicFileTest, NeverReplacesADevice) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "no /dev/full";
  EXPECT_EQ(
      message_for("/dev/full"),
      "/dev/full: cannot be written: it is a device, a pipe or a socket, want a regular file or a new name");
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
}

TEST_F(AtomicFileTest, NamesAMissingDirectory) {
  const auto path = (folder_ / "missing" / "out").string();
  EXPECT_EQ(message_for(path), path + ": cannot create a file in " + (folder_ / "missing").string() +
                                   ": No such file or directory");
}

TEST_F(AtomicFileTest, RefusesADirectoryAsATarget) {
  EXPECT_EQ(message_for(folder_.string()),
            folder_.string() + ": cannot be written: it is a directory, want a regular file or a new name");
}

TEST_F(AtomicFileTest, RefusesToWriteAfterCommit) {
  AtomicFile file(path_);
  file.commit();
  EXPECT_THROW(file.write("late"), Error);
  EXPECT_THROW(file.commit(), Error);
  EXPECT_EQ(read(path_), "");
}

TEST_F(AtomicFileTest, WritesBesideAnEqualWriter) {
  AtomicFile first(path_);
  AtomicFile second(path_);
  first.write("first");
  second.write("second");
  second.commit();
  first.commit();
  EXPECT_EQ(read(path_), "first");
  EXPECT_EQ(num_files(), 1);
}

}  // namespace
}  // namespace espalier
