#include "espalier/data/sources/source.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "tests/data/sources/cifar_files.h"
#include "tests/data/sources/messages.h"

namespace espalier::data {

namespace {

using namespace testing;

SourceConfig from(const std::string& data) {
  SourceConfig options;
  options.data = data;
  return options;
}

std::string canonical(const std::string& data) {
  return canonical_source(from(data));
}

std::string usage_error_of(const std::string& data) {
  try {
    load_source(from(data), {});
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no usage error";
}

}  // namespace

TEST(Source, ParsesSizesAndNamesWhatItCannot) {
  EXPECT_EQ(parse_size("--resize", "416x544").height, 416);
  EXPECT_EQ(parse_size("--resize", "416x544").width, 544);
  for (const char* text : {"", "32", "x", "32x", "x32", "0x3", "3x0", "-1x4", "4x-1", "32x32x3", "32 x 32",
                           "32X32", "a", "70000x1", "99999999999999999999x1", "+3x3", "3x3 "}) {
    const std::string error = error_of([&] { parse_size("--resize", text); });
    expect_contains(error, "--resize");
    expect_contains(error, *text == '\0' ? "''" : text);
    expect_contains(error, "expected HxW");
  }
}

TEST(Source, GivesOneStringForEverySpellingOfAPath) {
  const CifarFolder folder;
  std::filesystem::create_directories(folder / "data");
  std::filesystem::create_directory_symlink(folder / "data", folder / "link");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.string());
  const std::string expected = "cifar10:" + (folder / "data");
  for (const char* place : {"data", "./data", "data/", "./data/.", "data/../data", "link", "link//"}) {
    EXPECT_EQ(canonical(std::string("cifar10:") + place), expected) << place;
  }
  EXPECT_EQ(canonical("cifar10:new/"), canonical("cifar10:./new"));
  std::filesystem::current_path(before);
  EXPECT_EQ(canonical(expected), expected);
  EXPECT_EQ(canonical("cifar10:/"), "cifar10:/");
}

TEST(Source, GivesDifferentStringsForDifferentSources) {
  std::set<std::string> seen;
  const auto expect_new = [&](const SourceConfig& options) {
    const std::string text = canonical_source(options);
    EXPECT_TRUE(seen.insert(text).second) << text;
  };
  for (const char* data : {"cifar10:/a", "cifar10:/b", "cifar100:/a", "folder:/a", "safetensors:/a",
                           "folder:/a?on-bad-sample=error", "folder:/a%3Fon-bad-sample=error",
                           "synthetic:shapes10", "synthetic:rgbd"}) {
    expect_new(from(data));
  }
  SourceConfig folder = from("folder:/a");
  folder.resize = ImageSize{32, 32};
  expect_new(folder);
  folder.on_bad_sample = OnBadSample::kSkip;
  expect_new(folder);
  SourceConfig shapes = from("synthetic:shapes10");
  shapes.data_seed = 1;
  expect_new(shapes);
  shapes.synthetic_train = 5;
  expect_new(shapes);
  shapes.synthetic_test = 5;
  expect_new(shapes);
  shapes.synthetic_size = {16, 16};
  expect_new(shapes);
}

TEST(Source, IgnoresOptionsThatDoNotMatterToAKind) {
  SourceConfig cifar = from("cifar10:/a");
  cifar.data_seed = 4;
  EXPECT_EQ(canonical_source(cifar), "cifar10:/a");
  SourceConfig folder = from("folder:/a");
  folder.data_seed = 4;
  EXPECT_EQ(canonical_source(folder), canonical("folder:/a"));
}

TEST(Source, RefusesASizeOrChannelsForImagesThatAreNotInAFolder) {
  for (const char* address : {"synthetic:shapes10", "cifar10:/a", "safetensors:/a"}) {
    SourceConfig options = from(address);
    options.resize = ImageSize{64, 64};
    expect_contains(error_of([&] { canonical_source(options); }), "--resize 64x64");
    expect_contains(error_of([&] { canonical_source(options); }), address);
    options.resize.reset();
    options.channels = 3;
    expect_contains(error_of([&] { canonical_source(options); }), "--channels 3");
  }
  SourceConfig shapes = from("synthetic:shapes10");
  shapes.resize = ImageSize{64, 64};
  expect_contains(error_of([&] { canonical_source(shapes); }), "--synthetic-size");
}

TEST(Source, SuggestsTheNearestKind) {
  expect_contains(usage_error_of("cifar1O:/data"), "unknown kind 'cifar1O', did you mean 'cifar10'?");
  expect_contains(usage_error_of("cifar-100:/data"), "did you mean 'cifar100'?");
  expect_contains(usage_error_of("safetensor:/data"), "did you mean 'safetensors'?");
  expect_contains(usage_error_of("synthetic:shape10"), "did you mean 'shapes10'?");
  expect_contains(usage_error_of("synthetic:rgb"), "did you mean 'rgbd'?");
  expect_contains(usage_error_of(std::string(100000, 'x') + ":/data"), "unknown kind");
}

// Found by fuzzing: from a configuration such text reached messages and paths.
TEST(Source, RefusesControlCharacters) {
  for (const std::string& text :
       {std::string("folder:a\0b", 10), std::string("folder:a\nb"), std::string("fol\x1b:")}) {
    const std::string message = usage_error_of(text);
    expect_contains(message, "has a zero byte or another control character; expected cifar10:DIR");
    EXPECT_EQ(message.find_first_of("\n\x1b"), message.npos);
  }
  expect_contains(error_of([] { parse_size("--resize", "3\n2"); }), "--resize 3?2: expected HxW");
}

TEST(Source, SaysWhatABarePathNeeds) {
  expect_contains(usage_error_of("/data/images"),
                  "write cifar10:/data/images, cifar100:/data/images or folder:");
  expect_contains(usage_error_of("/data/a:b"), "write cifar10:/data/a:b");
  expect_contains(usage_error_of("./x.safetensors"), "write safetensors:./x.safetensors");
  expect_contains(usage_error_of("shapes10"), "write synthetic:shapes10");
  expect_contains(usage_error_of("cifar10"), "write cifar10:DIR");
  expect_contains(usage_error_of("cifar10:"), "write cifar10:DIR");
  expect_contains(usage_error_of("safetensors:"), "write safetensors:FILE");
  expect_contains(usage_error_of("synthetic:"), "write synthetic:shapes10");
  expect_contains(usage_error_of("no-such-thing"), "the kind is missing");
  expect_contains(usage_error_of(""), "--data is empty");
}

TEST(Source, ExplainsATildeThatTheShellLeftAlone) {
  expect_contains(error_of([] { canonical("cifar10:~/no-such-data"); }), "write cifar10:$HOME/no-such-data");
}

TEST(Source, RefusesOptionsThatCannotBeMeant) {
  SourceConfig folder = from("folder:/a");
  folder.resize = ImageSize{0, 32};
  expect_contains(error_of([&] { canonical_source(folder); }), "--resize 0x32: expected HxW");
  SourceConfig shapes = from("synthetic:shapes10");
  shapes.synthetic_size = {32, 65536};
  expect_contains(error_of([&] { canonical_source(shapes); }), "--synthetic-size 32x65536");
}

}  // namespace espalier::data
