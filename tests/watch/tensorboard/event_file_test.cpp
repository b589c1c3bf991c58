#include "espalier/watch/tensorboard/event_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/watch/tensorboard/event_record.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::watch {
namespace {

using support::TemporaryFolder;

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The events of a file; fails where a record is cut or a checksum is wrong.
std::vector<std::string> events_in(const std::filesystem::path& path) {
  const std::string bytes = read_file(path);
  std::vector<std::string> events;
  for (size_t at = 0; at < bytes.size();) {
    uint64_t length = 0;
    if (bytes.size() - at >= 16) std::memcpy(&length, bytes.data() + at, sizeof(length));
    if (bytes.size() - at < 16 || length > bytes.size() - at - 16) {
      ADD_FAILURE() << "a cut record at byte " << at << " of " << bytes.size();
      break;
    }
    events.push_back(bytes.substr(at + 12, length));
    EXPECT_EQ(bytes.substr(at, length + 16), record_of(events.back()));
    at += length + 16;
  }
  return events;
}

bool holds(const std::string& event, const std::string& part) {
  return event.find(part) != std::string::npos;
}

// Files cannot grow beyond a size while this lives, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(uint64_t size_bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit now{.rlim_cur = size_bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(EventFile, BeginsWithItsVersionAndIsNamedByTimeHostAndProcess) {
  const TemporaryFolder folder;
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  const EventFile file(folder.path());
  const std::string name = file.path().filename().string();
  ASSERT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  EXPECT_NEAR(std::stod(name.substr(20)), static_cast<double>(now), 60);
  EXPECT_TRUE(name.ends_with(fmt::format(".{}", getpid()))) << name;
  const auto events = events_in(file.path());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(holds(events[0],
                    "\x1a\x0d"
                    "brain.Event:2"));
}

TEST(EventFile, NamesSortInTheOrderOfTheStarts) {
  const TemporaryFolder folder;
  folder.write("events.out.tfevents.4000000000.a.99999", "");  // from a clock that went ahead
  folder.write("events.out.tfevents.99999999999999999999.a.1", "");
  folder.write("events.out.tfevents.odd", "");
  std::vector<std::string> names{folder / "events.out.tfevents.4000000000.a.99999"};
  for (int i = 0; i < 12; ++i) names.push_back(EventFile(folder.path()).path().string());
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  EXPECT_TRUE(holds(names[1], "tfevents.4000000001."));
}

TEST(EventFile, WritesWhatWasGivenInOrderAndOnlyWithAFlush) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  const auto size_bytes = std::filesystem::file_size(file.path());
  file.session_start(7);
  file.scalar("losses/\xc3\xa9", 7, 0.5);
  file.histogram("norms", 8, std::vector<double>{1, 2});
  file.histogram("nothing", 8, std::vector<double>{});
  const std::vector<uint8_t> pixels(12);
  file.image("batch", 9, {.width = 2, .height = 2, .channels = 3, .bytes = pixels});
  EXPECT_EQ(std::filesystem::file_size(file.path()), size_bytes);
  file.flush();
  const auto events = events_in(file.path());
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[1].substr(9), std::string("\x10\x07\x3a\x02\x08\x01"));
  EXPECT_EQ(events[2].substr(9), events[1].substr(9));
  EXPECT_TRUE(holds(events[3], "losses/\xc3\xa9"));
  EXPECT_TRUE(holds(events[4], "norms"));
  EXPECT_TRUE(holds(events[5], "batch") && holds(events[5], "\x89PNG"));
}

TEST(EventFile, FlushesWhenItEnds) {
  const TemporaryFolder folder;
  std::filesystem::path path;
  {
    EventFile file(folder.path());
    file.scalar("a", 1, 1);
    path = file.path();
  }
  EXPECT_EQ(events_in(path).size(), 2u);
}

TEST(EventFile, SaysThatTheDiskIsFullAndGoesOnWithWholeRecordsWhenItIsNot) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  file.scalar("before", 1, 1);
  file.flush();
  {
    const FullDisk disk(std::filesystem::file_size(file.path()) + 30);  // in the midst of a record
    file.scalar("lost", 2, 2);
    EXPECT_ERROR(file.flush(), Error, file.path().string(), "cannot be written", "File too large");
  }
  EXPECT_EQ(events_in(file.path()).size(), 2u);
  file.scalar("after", 3, 3);
  file.flush();
  const auto events = events_in(file.path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_TRUE(holds(events[1], "before"));
  EXPECT_TRUE(holds(events[2], "after"));
}

TEST(EventFile, LeavesNoFileWithoutItsFirstRecord) {
  const TemporaryFolder folder;
  {
    const FullDisk disk(10);
    EXPECT_ERROR(EventFile(folder.path()), Error, "events.out.tfevents.", "File too large");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(EventFile, NamesAFolderThatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_ERROR(EventFile(folder / "none"), Error, folder / "none", "No such file or directory");
}

TEST(EventFile, ATagThatIsNotUtf8LeavesTheFileAsItWas) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  EXPECT_ERROR(file.scalar("\xc3", 1, 1), Error, "not UTF-8");
  file.flush();
  EXPECT_EQ(events_in(file.path()).size(), 1u);
}

TEST(EventFile, ManyRecordsAreHandedOverWithoutAFlush) {
  const TemporaryFolder folder;
  EventFile file(folder.path());
  for (int step = 0; step < 40'000; ++step) file.scalar("a", step, step);
  EXPECT_GT(std::filesystem::file_size(file.path()), size_t{1} << 20);
  events_in(file.path());
}

}  // namespace
}  // namespace espalier::watch
