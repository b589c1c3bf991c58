#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/data/sources/source.h"
#include "tests/data/sources/image_files.h"

namespace espalier::data {
namespace {

namespace fs = std::filesystem;
using testing::Bytes;
using testing::flat_depth_png;
using testing::flat_png;
using testing::TemporaryFolder;

HostDataset load(const TemporaryFolder& folder, SourceConfig options = {}) {
  HostDataset dataset = load_folder(folder.string(), options, {});
  check_dataset(dataset);
  return dataset;
}

HostDataset load_skipping(const TemporaryFolder& folder) {
  SourceConfig options;
  options.on_bad_sample = OnBadSample::kSkip;
  return load(folder, options);
}

std::string error_of(const TemporaryFolder& folder, const SourceConfig& options = {}) {
  try {
    load_folder(folder.string(), options, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

// All of `parts` stand in `text`, which is one line.
void expect_names(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
}

// The first byte of every sample: the tests write flat images, so it tells which file a sample came from.
std::vector<int> first_values(const HostSplit& split, size_t field = 0) {
  const HostField& f = split.fields[field];
  std::vector<int> values;
  for (int64_t i = 0; i < split.num_samples(); ++i) {
    const std::byte* sample = f.values.get() + i * f.spec.bytes_per_sample();
    if (f.spec.type == SampleType::kU8) {
      values.push_back(static_cast<int>(sample[0]));
    } else {
      uint16_t value = 0;
      std::memcpy(&value, sample, sizeof(value));
      values.push_back(value);
    }
  }
  return values;
}

// Two classes; train: cat 10, 11, dog 20; test: cat 110, dog 120.
void write_cats_and_dogs(const TemporaryFolder& folder) {
  folder.write("train/dog/a.png", flat_png(4, 6, 20));
  folder.write("train/cat/b.png", flat_png(4, 6, 11));
  folder.write("train/cat/a.png", flat_png(4, 6, 10));
  folder.write("test/cat/a.png", flat_png(4, 6, 110));
  folder.write("test/dog/a.png", flat_png(4, 6, 120));
}

Bytes cut_in_half(Bytes file) {
  file.resize(file.size() / 2);
  return file;
}

TEST(Folder, GivesSamplesClassByClassSortedByName) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  folder.write("train/Zebra/B.PNG", flat_png(4, 6, 1));  // upper case sorts first, byte by byte
  folder.write("train/Zebra/a.Jpeg",
               testing::encode_jpeg({.height = 4, .width = 6}, std::vector<uint8_t>(72, 2)));
  folder.write("test/Zebra/x.png", flat_png(4, 6, 101));
  const HostDataset dataset = load(folder);
  EXPECT_EQ(dataset.class_names, (std::vector<std::string>{"Zebra", "cat", "dog"}));
  EXPECT_EQ(dataset.train.labels, (std::vector<int64_t>{0, 0, 1, 1, 2}));
  EXPECT_EQ(first_values(dataset.train), (std::vector<int>{1, 2, 10, 11, 20}));
  EXPECT_EQ(dataset.test.labels, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_EQ(first_values(dataset.test), (std::vector<int>{101, 110, 120}));
  const FieldSpec spec = dataset.train.fields.at(0).spec;
  EXPECT_EQ(spec,
            (FieldSpec{.name = "image", .type = SampleType::kU8, .height = 4, .width = 6, .channels = 3}));
  ASSERT_EQ(dataset.statistics.size(), 1u);
  EXPECT_NEAR(dataset.statistics[0].mean.at(2), (1 + 2 + 10 + 11 + 20) / 5.0 / 255.0, 1e-12);
}

TEST(Folder, PassesOverHiddenFilesAndFilesThatAreNoImages) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  const Bytes other(6, std::byte{'x'});
  for (const char* name : {".DS_Store", "train/.DS_Store", "train/cat/.DS_Store", "train/cat/._a.png",
                           "train/cat/Thumbs.db", "train/notes.txt", "test/.git/HEAD", "readme.md"}) {
    folder.write(name, other);
  }
  fs::create_directories(folder / "notes/other");
  const HostDataset dataset = load(folder);
  EXPECT_EQ(dataset.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(first_values(dataset.train), (std::vector<int>{10, 11, 20}));
}

TEST(Folder, NamesAClassThatIsMissingExtraEmptyOrHidden) {
  {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    fs::remove_all(folder / "test/dog");
    expect_names(error_of(folder), {"'dog'", "missing", "/test'"});
  }
  {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    folder.write("test/ant/a.png", flat_png(4, 6, 1));
    expect_names(error_of(folder), {"'ant'", "not in train", "/test'"});
  }
  for (const std::string split : {"train", "test"}) {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    fs::create_directories(folder / "train/bee");
    fs::create_directories(folder / "test/bee");
    folder.write((split == "train" ? "test" : "train") + std::string("/bee/a.png"), flat_png(4, 6, 1));
    folder.write(split + "/bee/.DS_Store", Bytes(3));
    expect_names(error_of(folder), {"'bee'", "no image in " + split});
  }
  {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    folder.write("train/.bee/a.png", flat_png(4, 6, 1));
    expect_names(error_of(folder), {"/train/.bee'", "hidden"});
  }
}

TEST(Folder, RefusesImagesItWouldNotSee) {
  for (const std::string name : {"train/a.png", "train/cat/deep/a.png", "test/dog/a.WebP"}) {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    folder.write(name, flat_png(4, 6, 1));
    const std::string named = name == "train/cat/deep/a.png" ? "train/cat/deep" : name;
    expect_names(error_of(folder), {folder.string() + "/" + named + "'"});
  }
}

TEST(Folder, SaysWhatIsMissingInAFolderOfAnotherLayout) {
  {
    const TemporaryFolder folder;
    expect_names(error_of(folder), {folder.string(), "no folder 'train'", "train/<class>/"});
    fs::create_directories(folder / "training");
    expect_names(error_of(folder), {"no folder 'train'", "'training'"});
    fs::create_directories(folder / "train");
    expect_names(error_of(folder), {"no folder 'test'"});
    fs::create_directories(folder / "test");
    expect_names(error_of(folder), {"/train'", "no classes"});
    folder.write("rgb/train/cat/a.png", flat_png(4, 6, 1));
    expect_names(error_of(folder), {"both 'train' and 'rgb/train'"});
  }
  const TemporaryFolder folder;
  folder.write("file", Bytes(1));
  EXPECT_THROW(load_folder(folder / "file", {}, {}), Error);
  EXPECT_THROW(load_folder(folder / "nowhere", {}, {}), Error);
}

TEST(Folder, NamesBrokenLinksAndLoops) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  fs::create_symlink("loop.png", folder / "train/cat/loop.png");
  expect_names(error_of(folder), {"loop.png"});
  fs::remove(folder / "train/cat/loop.png");
  fs::create_symlink("nowhere.png", folder / "train/cat/broken.png");
  expect_names(error_of(folder), {"broken.png"});
  fs::remove(folder / "train/cat/broken.png");
  fs::create_directory_symlink("..", folder / "train/cat/up");  // a loop of folders
  expect_names(error_of(folder), {"train/cat/up"});
  fs::remove(folder / "train/cat/up");
  fs::create_symlink("a.png", folder / "train/cat/link.png");  // a sound link is read
  EXPECT_EQ(first_values(load(folder).train), (std::vector<int>{10, 11, 10, 20}));
}

TEST(Folder, NamesAFileItMayNotRead) {
  if (geteuid() == 0) GTEST_SKIP() << "root reads every file";
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  fs::permissions(folder / "train/cat/b.png", fs::perms::none);
  expect_names(error_of(folder), {"train/cat/b.png", "ermission"});
}

TEST(Folder, NamesAnImageThatDiffersAndTheRemedy) {
  {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    folder.write("test/dog/b.png", flat_png(5, 6, 1));
    expect_names(error_of(folder), {"test/dog/b.png", "5x6", "train/cat/a.png", "4x6", "--resize HxW"});
  }
  const std::pair<Bytes, std::string> cases[] = {{flat_png(4, 6, 1, PNG_COLOR_TYPE_GRAY), "1 channel,"},
                                                 {flat_depth_png(4, 6, 1), "uint16"}};
  for (const auto& [file, what] : cases) {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    folder.write("train/dog/b.png", file);
    SourceConfig options;
    options.on_bad_sample = OnBadSample::kSkip;  // it is sound: skipping would hide it
    for (const std::optional<ImageSize> resize :
         {std::optional<ImageSize>{}, std::optional(ImageSize{8, 8})}) {
      options.resize = resize;
      expect_names(error_of(folder, options),
                   {"train/dog/b.png", what, "train/cat/a.png", "3 channels, uint8"});
    }
  }
}

// cat 50, dog 60.
void write_validation(const TemporaryFolder& folder, const std::string& name) {
  folder.write(name + "/cat/a.png", flat_png(4, 6, 50));
  folder.write(name + "/dog/a.png", flat_png(4, 6, 60));
}

TEST(Folder, TakesValBesideTestForTheValidationSplit) {
  for (const char* name : {"val", "valid", "validation"}) {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    write_validation(folder, name);
    const HostDataset dataset = load(folder);
    ASSERT_TRUE(dataset.has_validation());
    EXPECT_EQ(first_values(dataset.validation), (std::vector<int>{50, 60}));
    EXPECT_EQ(dataset.validation.labels, (std::vector<int64_t>{0, 1}));
    EXPECT_EQ(first_values(dataset.train), (std::vector<int>{10, 11, 20}));
    EXPECT_EQ(first_values(dataset.test), (std::vector<int>{110, 120}));
    EXPECT_NEAR(dataset.statistics[0].mean.at(0), (10 + 11 + 20) / 3.0 / 255.0, 1e-12) << "of train alone";
  }
}

TEST(Folder, TakesValForTestWhereThereIsNoTest) {
  for (const char* name : {"val", "valid", "validation"}) {
    const TemporaryFolder folder;
    write_cats_and_dogs(folder);
    fs::remove_all(folder / "test");
    write_validation(folder, name);
    const HostDataset dataset = load(folder);
    EXPECT_FALSE(dataset.has_validation());
    EXPECT_EQ(first_values(dataset.test), (std::vector<int>{50, 60}));
  }
}

TEST(Folder, NamesWhatIsWrongWithAValidationSplit) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  write_validation(folder, "val");
  fs::create_directories(folder / "valid");
  expect_names(error_of(folder), {"both 'val' and 'valid'"});
  fs::remove_all(folder / "valid");
  fs::remove_all(folder / "val/dog");
  expect_names(error_of(folder), {"'dog'", "missing", "/val'"});
}

TEST(Folder, MakesGreyAndColourImagesWhatChannelsSays) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  folder.write("train/dog/b.png", flat_png(4, 6, 90, PNG_COLOR_TYPE_GRAY));
  folder.write("test/dog/b.png", flat_png(8, 6, 95, PNG_COLOR_TYPE_GRAY_ALPHA));
  SourceConfig options;
  expect_names(error_of(folder), {"train/dog/b.png", "1 channel,", "--channels 1 or --channels 3"});
  for (const int64_t channels : {1, 3}) {
    options.channels = channels;
    options.resize = ImageSize{4, 6};
    const HostDataset dataset = load(folder, options);
    EXPECT_EQ(dataset.train.fields[0].spec.channels, channels);
    EXPECT_EQ(first_values(dataset.train), (std::vector<int>{10, 11, 20, 90}));
    EXPECT_EQ(first_values(dataset.test), (std::vector<int>{110, 120, 95}));
  }
  options.channels = 2;
  expect_names(error_of(folder, options), {"--channels 2", "1 (grey) or 3 (colour)"});
  options.channels = 3;
  folder.write("train/dog/c.png", flat_depth_png(4, 6, 1));
  expect_names(error_of(folder, options), {"train/dog/c.png", "uint16", "channels and bits"});
}

TEST(Folder, ResizesToOneSizeWhenAsked) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  folder.write("train/dog/b.png", flat_png(50, 3, 21));
  SourceConfig options;
  options.resize = ImageSize{5, 7};
  const HostDataset dataset = load(folder, options);
  EXPECT_EQ(dataset.train.fields[0].spec.height, 5);
  EXPECT_EQ(dataset.train.fields[0].spec.width, 7);
  EXPECT_EQ(first_values(dataset.train), (std::vector<int>{10, 11, 20, 21}));
  options.resize = ImageSize{60000, 60000};
  expect_names(error_of(folder, options), {"--resize 60000x60000"});
}

TEST(Folder, NamesABadSampleWithItsIndex) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  folder.write("train/dog/a.png", cut_in_half(flat_png(4, 6, 20)));
  expect_names(error_of(folder), {"train/dog/a.png", "sample 2 of train", "--on-bad-sample skip"});
}

TEST(Folder, KeepsLabelsAlignedWhenABadSampleIsSkipped) {
  const TemporaryFolder folder;
  // 10 classes of 20; sample i of class c has the value 20 * c + i. The bad ones: the first and last of all,
  // three in a row across the border of two classes, and one alone.
  const std::set<int> bad = {0, 59, 60, 61, 110, 199};
  std::vector<int> want_values;
  std::vector<int64_t> want_labels;
  for (int k = 0; k < 200; ++k) {
    const std::string name = fmt::format("/c{}/{:03}.png", k / 20, k % 20);
    const Bytes file = flat_png(3, 3, static_cast<uint8_t>(k));
    folder.write("train" + name, bad.contains(k) ? cut_in_half(file) : file);
    if (k % 20 < 2) folder.write("test" + name, k == 21 ? Bytes{} : file);
    if (bad.contains(k)) continue;
    want_values.push_back(k);
    want_labels.push_back(k / 20);
  }
  const HostDataset dataset = load_skipping(folder);
  EXPECT_EQ(dataset.train.labels, want_labels);
  EXPECT_EQ(first_values(dataset.train), want_values);
  EXPECT_EQ(dataset.test.num_samples(), 19);
  ASSERT_EQ(dataset.skipped.size(), bad.size() + 1);
  auto skipped = dataset.skipped.begin();
  for (const int k : bad) {
    EXPECT_EQ(skipped->index, k);
    expect_names(skipped->path, {fmt::format("train/c{}/{:03}.png", k / 20, k % 20)});
    expect_names(skipped->reason, {"PNG"});
    ++skipped;
  }
  EXPECT_EQ(skipped->index, 3);  // in the order of test
  expect_names(skipped->path, {"test/c1/001.png"});
}

TEST(Folder, ListsSkippedSamplesInOrderHoweverLongTheirNeighboursTake) {
  const TemporaryFolder folder;
  folder.write("train/c/00.png",
               flat_png(3000, 1000, 7));  // keeps the first thread busy while the rest is done
  for (int k = 1; k < 64; ++k) {
    folder.write(fmt::format("train/c/{:02}.png", k), k % 2 == 1 ? Bytes(9) : flat_png(2, 2, 7));
  }
  folder.write("test/c/0.png", flat_png(2, 2, 7));
  SourceConfig options;
  options.on_bad_sample = OnBadSample::kSkip;
  options.resize = ImageSize{2, 2};
  const HostDataset dataset = load(folder, options);
  EXPECT_EQ(dataset.train.num_samples(), 32);
  ASSERT_EQ(dataset.skipped.size(), 32u);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(dataset.skipped[i].index, static_cast<int64_t>(2 * i + 1));
}

TEST(Folder, RefusesAClassOfWhichSkippingLeavesNothing) {
  const TemporaryFolder folder;
  write_cats_and_dogs(folder);
  folder.write("test/dog/a.png", Bytes(10));
  SourceConfig options;
  options.on_bad_sample = OnBadSample::kSkip;
  expect_names(error_of(folder, options), {"'dog'", "in test"});
  for (const char* name : {"train/cat/a.png", "train/cat/b.png", "train/dog/a.png"})
    folder.write(name, Bytes(10));
  expect_names(error_of(folder, options), {"none of the 3", "'image'", "train/cat/a.png"});
}

// Fields rgb (8 bits, 3 channels) and depth (16 bits), two samples per class.
void write_rgbd(const TemporaryFolder& folder) {
  for (const std::string split : {"train", "test"}) {
    const int base = split == "train" ? 0 : 100;
    for (int k = 0; k < 4; ++k) {
      const std::string name = fmt::format("/{}/c{}/{}", split, k / 2, k % 2);
      folder.write("rgb" + name + ".jpg.png", flat_png(4, 4, static_cast<uint8_t>(base + k)));
      folder.write("depth" + name + ".jpg.PNG", flat_depth_png(2, 3, static_cast<uint16_t>(1000 + base + k)));
    }
  }
}

TEST(Folder, PairsFieldsByNameWithoutExtension) {
  const TemporaryFolder folder;
  write_rgbd(folder);
  // By file name "z-1.png" comes before "z.png", by stem after it: the pairing must hold either way.
  for (const std::string split : {"train", "test"}) {
    folder.write("rgb/" + split + "/c1/z-1.png", flat_png(4, 4, 51));
    folder.write("rgb/" + split + "/c1/z.png", flat_png(4, 4, 50));
    folder.write("depth/" + split + "/c1/z.png", flat_depth_png(2, 3, 1050));
    folder.write("depth/" + split + "/c1/z-1.png", flat_depth_png(2, 3, 1051));
  }
  const HostDataset dataset = load(folder);
  ASSERT_EQ(dataset.train.fields.size(), 2u);
  EXPECT_EQ(dataset.train.fields[0].spec.name, "depth");
  EXPECT_EQ(dataset.train.fields[0].spec.type, SampleType::kU16);
  EXPECT_EQ(dataset.train.fields[1].spec.name, "rgb");
  EXPECT_EQ(dataset.train.labels, (std::vector<int64_t>{0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(first_values(dataset.train, 0), (std::vector<int>{1000, 1001, 1002, 1003, 1051, 1050}));
  EXPECT_EQ(first_values(dataset.train, 1), (std::vector<int>{0, 1, 2, 3, 51, 50}));
  EXPECT_EQ(first_values(dataset.test, 0), (std::vector<int>{1100, 1101, 1102, 1103, 1051, 1050}));
  EXPECT_EQ(dataset.statistics.size(), 2u);
}

TEST(Folder, SkipsABadSampleInAllItsFields) {
  const TemporaryFolder folder;
  write_rgbd(folder);
  folder.write("rgb/train/c0/1.jpg.png", Bytes(5));
  folder.write("depth/train/c1/0.jpg.PNG", Bytes(5));
  folder.write("rgb/train/c1/0.jpg.png", Bytes(5));  // bad in both fields, listed once
  const HostDataset dataset = load_skipping(folder);
  EXPECT_EQ(dataset.train.labels, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(first_values(dataset.train, 0), (std::vector<int>{1000, 1003}));
  EXPECT_EQ(first_values(dataset.train, 1), (std::vector<int>{0, 3}));
  ASSERT_EQ(dataset.skipped.size(), 2u);
  expect_names(dataset.skipped[0].path, {"rgb/train/c0/1.jpg.png"});
  expect_names(dataset.skipped[1].path, {"depth/train/c1/0.jpg.PNG"});
}

TEST(Folder, NamesASampleThatAFieldLacks) {
  const std::pair<std::string, std::string> cases[] = {
      {"rgb/test/c1/1.jpg.png", "'depth' and not in field 'rgb'"},
      {"depth/test/c1/1.jpg.PNG", "'rgb' and not in field 'depth'"}};
  for (const auto& [removed, what] : cases) {
    const TemporaryFolder folder;
    write_rgbd(folder);
    fs::remove(folder / removed);
    expect_names(error_of(folder), {"'c1/1.jpg'", "of test", what});
  }
  const TemporaryFolder folder;
  write_rgbd(folder);
  folder.write("rgb/train/c0/0.jpg.jpg", flat_png(4, 4, 1));
  expect_names(error_of(folder), {"0.jpg.jpg", "0.jpg.png", "paired by name"});
  fs::remove(folder / "rgb/train/c0/0.jpg.jpg");
  fs::remove_all(folder / "rgb/train/c1");
  expect_names(error_of(folder), {"'c1'", "rgb/train"});
  fs::remove_all(folder / "rgb/train");
  expect_names(error_of(folder), {"/rgb'", "no folder 'train'"});
}

TEST(Folder, TellsItsProgressFromOneThreadAtATimeToTheEnd) {
  const TemporaryFolder folder;
  for (int k = 0; k < 300; ++k) folder.write(fmt::format("train/c/{}.png", k), flat_png(2, 2, 1));
  folder.write("test/c/0.png", flat_png(2, 2, 1));
  std::atomic<int> num_inside = 0;
  int64_t last = 0;
  load_folder(folder.string(), {}, [&](std::string_view, int64_t done, int64_t total) {
    EXPECT_EQ(num_inside.fetch_add(1), 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // time for another thread to come in
    EXPECT_GT(done, last);
    EXPECT_EQ(total, 301);
    last = done;
    num_inside.fetch_sub(1);
  });
  EXPECT_EQ(last, 301);
}

TEST(Folder, GivesImagesWithoutClassesInTheOrderOfTheirNames) {
  const TemporaryFolder folder;
  for (const int value : {3, 1, 2})
    folder.write(fmt::format("{}.png", value), flat_png(4, 2, static_cast<uint8_t>(value)));
  folder.write("notes.txt", std::string_view("no image"));
  const auto images = load_unlabelled({.data = "folder:" + folder.string()}, {});
  ASSERT_TRUE(images);
  EXPECT_EQ(first_values(images->images), (std::vector{1, 2, 3}));
  EXPECT_EQ(images->files, (std::vector<std::string>{folder / "1.png", folder / "2.png", folder / "3.png"}));
  folder.write("2.png", std::string_view("damaged"));
  EXPECT_THROW(load_unlabelled({.data = "folder:" + folder.string()}, {}), Error);
  const auto left =
      load_unlabelled({.data = "folder:" + folder.string(), .on_bad_sample = OnBadSample::kSkip}, {});
  EXPECT_EQ(first_values(left->images), (std::vector{1, 3}));
  EXPECT_EQ(left->files, (std::vector<std::string>{folder / "1.png", folder / "3.png"}));
  ASSERT_EQ(left->skipped.size(), 1u);
  folder.write("cats/1.png", flat_png(4, 2, 1));
  try {
    load_unlabelled({.data = "folder:" + folder.string()}, {});
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    expect_names(error.what(), {"'cats'", folder.string()});
  }
}

TEST(Folder, IsLabelledWhereNoImageLiesDirectlyInIt) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "test"})
    folder.write(fmt::format("{}/c/0.png", split), flat_png(2, 2, 1));
  EXPECT_FALSE(load_unlabelled({.data = "folder:" + folder.string()}, {}));
  EXPECT_FALSE(load_unlabelled({.data = "synthetic:shapes10"}, {}));
}

}  // namespace
}  // namespace espalier::data
