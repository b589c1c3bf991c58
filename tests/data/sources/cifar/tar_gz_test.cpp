#include "espalier/data/sources/cifar/tar_gz.h"

#include <gtest/gtest.h>

#include <algorithm>
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

namespace {

// Bytes of two files that differ; all of the longer one's rest.
size_t num_different(const std::string& a, const std::string& b) {
  size_t count = std::max(a.size(), b.size()) - std::min(a.size(), b.size());
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) count += a[i] != b[i] ? 1 : 0;
  return count;
}

// A copy of `text` with one to four bytes replaced; how many goes to `flips`.
std::string damaged_copy(std::string text, std::mt19937& random, size_t& flips) {
  flips = 1 + random() % 4;
  for (size_t i = 0; i < flips; ++i) text[random() % text.size()] = static_cast<char>(random());
  return text;
}

}  // namespace

// The gzip stream has a checksum over everything: what is accepted is what was written.
TEST(TarGz, SurvivesRandomDamageToTheCompressedBytes) {
  const std::string archive = gzip(tar_of("folder", kFiles));
  const Files whole = read_all(archive);
  std::mt19937 random(20);
  DamageCount count;
  for (int round = 0; round < 2000; ++round) {
    size_t flips = 0;
    const std::string damaged = damaged_copy(archive, random, flips);
    Files files;
    const std::string error = error_of([&] { files = read_all(damaged); });
    ++(error.empty() ? count.accepted : count.refused);
    if (error.empty()) {
      EXPECT_EQ(files, whole) << "round " << round;
    } else {
      expect_sentence(error, "a.tar.gz");
    }
  }
  EXPECT_GT(count.refused, 1000);
  EXPECT_GT(count.accepted, 0) << "the header's time and system mean nothing";
}

// A damaged tar that was compressed again: headers have checksums, contents have none.
TEST(TarGz, SurvivesRandomDamageToTheTar) {
  const std::string tar = tar_of("folder", kFiles);
  const Files whole = read_all(gzip(tar));
  std::mt19937 random(21);
  DamageCount count;
  for (int round = 0; round < 2000; ++round) {
    size_t flips = 0;
    const std::string damaged = damaged_copy(tar, random, flips);
    Files files;
    const std::string error = error_of([&] { files = read_all(gzip(damaged)); });
    ++(error.empty() ? count.accepted : count.refused);
    if (!error.empty()) {
      expect_sentence(error, "a.tar.gz");
      continue;
    }
    ASSERT_EQ(files.size(), whole.size()) << "round " << round;
    size_t different = 0;
    for (size_t i = 0; i < files.size(); ++i) {
      EXPECT_EQ(files[i].first, whole[i].first) << "round " << round;
      ASSERT_EQ(files[i].second.size(), whole[i].second.size()) << "round " << round;
      different += num_different(files[i].second, whole[i].second);
    }
    EXPECT_LE(different, flips) << "round " << round;
  }
  EXPECT_GT(count.refused, 100);
  EXPECT_GT(count.accepted, 100);
}

// Headers with the right checksum and any content: whatever they say, what is read are bytes of the archive,
// no more than it has.
TEST(TarGz, SurvivesHeadersThatSayAnything) {
  const std::string tar = tar_of("folder", kFiles);
  const Files whole = read_all(gzip(tar));
  std::mt19937 random(22);
  DamageCount count;
  int num_other = 0;  // accepted, and not what was written
  for (int round = 0; round < 2000; ++round) {
    size_t flips = 0;
    // The headers of the folder and of its first file.
    std::string headers = damaged_copy(tar.substr(0, 512 * 2), random, flips);
    std::string damaged = headers + tar.substr(headers.size());
    for (size_t at = 0; at < headers.size(); at += 512) seal_header(damaged, at);
    Files files;
    const std::string error = error_of([&] { files = read_all(gzip(damaged)); });
    ++(error.empty() ? count.accepted : count.refused);
    if (!error.empty()) {
      expect_sentence(error, "a.tar.gz");
      continue;
    }
    num_other += files != whole ? 1 : 0;
    size_t total = 0;
    for (const auto& [name, content] : files) {
      total += content.size();
      EXPECT_NE(damaged.find(content), std::string::npos) << "round " << round << ": " << name;
    }
    EXPECT_LE(total, damaged.size()) << "round " << round;
  }
  EXPECT_GT(count.refused, 100);
  EXPECT_GT(count.accepted, 100);
  EXPECT_GT(num_other, 30);
}

}  // namespace espalier::data
