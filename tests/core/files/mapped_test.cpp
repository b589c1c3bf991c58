#include "espalier/core/files/mapped.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "espalier/core/error.h"
#include "tests/support/temporary_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

class MappedFileTest : public testing::Test {
 protected:
  std::string make(const std::string& name, const std::string& text) const {
    const auto path = (folder_ / name).string();
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string message_for(const std::string& path) const {
    try {
      map_file(path);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  support::TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
};

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.data.get()), file.size_bytes};
}

TEST_F(MappedFileTest, GivesTheBytesOfTheFile) {
  const auto file = map_file(make("a", std::string("one\0two", 7)));
  EXPECT_EQ(file.size_bytes, 7u);
  EXPECT_EQ(file.bytes().size(), 7u);
  EXPECT_EQ(text_of(file), std::string("one\0two", 7));
}

TEST_F(MappedFileTest, MapsAnEmptyFileAsNoBytes) {
  const auto file = map_file(make("empty", ""));
  EXPECT_EQ(file.size_bytes, 0u);
  EXPECT_TRUE(file.bytes().empty());
}

TEST_F(MappedFileTest, KeepsTheBytesWhileAnAliasLivesAndTheFileIsGone) {
  std::shared_ptr<const std::byte> alias;
  {
    const auto path = make("a", "gone soon");
    const auto file = map_file(path);
    alias = std::shared_ptr<const std::byte>(file.data, file.data.get() + 5);
    fs::remove(path);
  }
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(alias.get()), 4), "soon");
}

TEST_F(MappedFileTest, NamesAMissingFileAndTheReason) {
  const auto path = (folder_ / "missing").string();
  EXPECT_EQ(message_for(path), path + ": cannot be opened: No such file or directory");
}

TEST_F(MappedFileTest, RefusesADirectory) {
  EXPECT_EQ(message_for(folder_.string()), folder_.string() + ": is a directory, want a regular file");
}

TEST_F(MappedFileTest, RefusesAFifoWithoutWaitingForAWriter) {
  const auto path = (folder_ / "fifo").string();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(message_for(path), path + ": is a device, a pipe or a socket, want a regular file");
}

}  // namespace
}  // namespace espalier
