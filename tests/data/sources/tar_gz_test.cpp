#include "espalier/data/sources/tar_gz.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/data/sources/cifar_files.h"
#include "tests/data/sources/messages.h"

namespace espalier::data {

namespace {

using namespace testing;

// All members of an archive.
Files read_all(const std::string& archive) {
  TarGzReader reader(read_from(bytes_of_string(archive)), "a.tar.gz");
  Files files;
  while (const auto member = reader.next()) {
    if (member->size_bytes > (int64_t{1} << 20)) fail("a.tar.gz: a member of {} bytes", member->size_bytes);
    std::string content(static_cast<size_t>(member->size_bytes), '\0');
    reader.read(std::as_writable_bytes(std::span(content)));
    files.emplace_back(member->name, content);
  }
  return files;
}

std::string error_for(const std::string& archive) {
  return error_of([&] { read_all(archive); });
}

const Files kFiles = {
    {"one", "first"}, {"two", std::string(1000, 'x')}, {"empty", ""}, {"block", std::string(512, 'y')}};

}  // namespace

TEST(TarGz, GivesNamesAndContentsInOrder) {
  const Files files = read_all(gzip(tar_of("folder", kFiles)));
  ASSERT_EQ(files.size(), kFiles.size());
  for (size_t i = 0; i < files.size(); ++i) {
    EXPECT_EQ(files[i].first, "folder/" + kFiles[i].first);
    EXPECT_EQ(files[i].second, kFiles[i].second);
  }
}

TEST(TarGz, PassesOverTheUnreadRestOfAMember) {
  const std::string archive = gzip(tar_of("folder", kFiles));
  TarGzReader reader(read_from(bytes_of_string(archive)), "a.tar.gz");
  reader.next();
  EXPECT_EQ(reader.next()->name, "folder/two");
  std::string part(10, '\0');
  reader.read(std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, "xxxxxxxxxx");
  EXPECT_EQ(reader.next()->name, "folder/empty");
}

TEST(TarGz, RefusesToReadPastAMember) {
  const std::string archive = gzip(tar_of("folder", kFiles));
  TarGzReader reader(read_from(bytes_of_string(archive)), "a.tar.gz");
  reader.next();
  std::string part(6, '\0');
  EXPECT_THROW(reader.read(std::as_writable_bytes(std::span(part))), Error);
}

TEST(TarGz, ReadsGnuLongNamesAndPaxHeaders) {
  std::string tar;
  const std::string long_name = std::string(150, 'd') + "/name";
  append_member(tar, "././@LongLink", long_name + '\0', 'L');
  append_member(tar, "short", "gnu");
  append_member(tar, "pax_global", "19 comment=whatever\n", 'g');
  append_member(tar, "PaxHeader", "12 path=new\n10 size=3\n20 mtime=1234567.25\n", 'x');
  append_member(tar, "old", "pax");
  append_member(tar, "link", "", '2');
  append_member(tar, "last", "end");
  tar.resize(tar.size() + 1024);
  const Files files = read_all(gzip(tar));
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0], (std::pair<std::string, std::string>(long_name, "gnu")));
  EXPECT_EQ(files[1], (std::pair<std::string, std::string>("new", "pax")));
  EXPECT_EQ(files[2], (std::pair<std::string, std::string>("last", "end")));
}

TEST(TarGz, NamesTheByteOfADamagedHeader) {
  std::string tar = tar_of("folder", kFiles);
  tar[1024 + 512 + 3] = 'X';  // the second file's name
  const std::string error = error_for(gzip(tar));
  expect_contains(error, "a.tar.gz");
  expect_contains(error, "damaged tar header at byte 1536");
}

// Found by fuzzing: the message held the header's bytes as they were.
TEST(TarGz, ShowsAnUnknownKindOnOneLine) {
  std::string tar = tar_of("folder", kFiles);
  std::memcpy(tar.data() + 257, "a\x1b\nb", 5);
  seal_header(tar, 0);
  expect_contains(error_for(gzip(tar)), R"(is of an unknown kind "a\x1b\x0ab", expected ustar)");
}

TEST(TarGz, RefusesASizeThatIsNoOctalNumber) {
  std::string tar = tar_of("folder", kFiles);
  tar[512 + 124] = '\x80';  // base 256
  seal_header(tar, 512);
  expect_contains(error_for(gzip(tar)), "no valid size");
}

TEST(TarGz, RefusesASizeBeyondTheArchive) {
  std::string tar;
  append_member(tar, "a", "content");
  std::memcpy(tar.data() + 124, "00777777777", 11);
  seal_header(tar, 0);
  expect_contains(error_for(gzip(tar)), "a member of 134217727 bytes");
  TarGzReader reader(read_from({}), "b.tar.gz");
  expect_contains(error_of([&] { reader.next(); }), "ends early");
}

TEST(TarGz, RefusesPaxRecordsWithoutAValidLengthOrSize) {
  for (const std::string record :
       {"99 path=new\n", "x path=new\n", "2 \n", "12 path=newer\n", "0 path=new\n", "12"}) {
    std::string tar;
    append_member(tar, "PaxHeader", record, 'x');
    expect_contains(error_for(gzip(tar)), "pax header");
  }
  for (const std::string record : {"11 size=-3\n", "11 size=3x\n", "28 size=9999999999999999999\n"}) {
    std::string tar;
    append_member(tar, "PaxHeader", record, 'x');
    expect_contains(error_for(gzip(tar)), "pax header");
  }
}

TEST(TarGz, RefusesAnOversizedLongName) {
  std::string tar;
  append_member(tar, "././@LongLink", std::string(100000, 'n'), 'L');
  expect_contains(error_for(gzip(tar)), "100000 bytes, expected at most 65536");
}

TEST(TarGz, RefusesTruncationAtEveryLength) {
  const std::string archive = gzip(tar_of("folder", kFiles));
  for (size_t size = 0; size < archive.size(); ++size) {
    EXPECT_NE(error_for(archive.substr(0, size)), "") << "at length " << size;
  }
}

TEST(TarGz, RefusesATarThatEndsEarlyAtEveryLength) {
  const std::string tar = tar_of("folder", kFiles);
  const size_t needed = 5 * 512 + 512 + 1024 + 0 + 512 + 1024;  // headers, contents, end mark
  for (size_t size = 0; size < needed; size += 7) {
    EXPECT_NE(error_for(gzip(tar.substr(0, size))), "") << "at length " << size;
  }
  EXPECT_EQ(error_for(gzip(tar.substr(0, needed))), "");
}

TEST(TarGz, RefusesDataAfterTheEndMark) {
  std::string tar = tar_of("folder", kFiles);
  tar.back() = 'x';
  expect_contains(error_for(gzip(tar)), "after the archive's end mark");
}

TEST(TarGz, SurvivesRandomDamage) {
  const std::string tar = tar_of("folder", kFiles);
  const std::string archive = gzip(tar);
  std::mt19937 random(20);
  for (int round = 0; round < 4000; ++round) {
    std::string damaged = round % 2 == 0 ? tar : archive;
    for (unsigned flips = 1 + static_cast<unsigned>(random() % 4); flips > 0; --flips) {
      damaged[random() % damaged.size()] = static_cast<char>(random());
    }
    if (round % 2 == 0) {
      // Valid checksums, or no damage would get past them.
      for (size_t at = 0; round % 4 == 0 && at < 512 * 3; at += 512) seal_header(damaged, at);
      damaged = gzip(damaged);
    }
    error_for(damaged);  // loads, or throws Error; anything else ends the test
  }
}

}  // namespace espalier::data
