#include "espalier/data/sources/class_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "espalier/data/sources/cifar/release.h"
#include "espalier/data/sources/source.h"
#include "tests/data/sources/cifar_files.h"
#include "tests/data/sources/image_files.h"
#include "tests/data/sources/messages.h"

namespace espalier::data {
namespace {

using namespace testing;

std::string canonical_text(const std::string& text) {
  return classes_text(parse_classes("--classes", text));
}

TEST(ClassChoice, HasOneTextForEverySpelling) {
  EXPECT_EQ(parse_classes("--classes", "0,3,7-9"), (std::vector<int64_t>{0, 3, 7, 8, 9}));
  EXPECT_TRUE(parse_classes("--classes", "").empty());
  for (const char* text : {"0-4", "4,0,2,1,3", "0,1-3,4", "3-4,0-2"}) EXPECT_EQ(canonical_text(text), "0-4");
  EXPECT_EQ(canonical_text("7-9,3,0"), "0,3,7-9");
  EXPECT_EQ(canonical_text("0-1"), "0,1");
  EXPECT_EQ(canonical_text("5,6"), "5,6");
}

TEST(ClassChoice, NamesWhatItCannotRead) {
  for (const char* text : {",", "0,", "a", "0-", "-3", "0--3", "4-0", "0,0", "0-4,3", "1.5", " 1,2", "0-4-5",
                           "7", "3-3", "0,99999999999999999999", "0-65536", "0-65535,0-65535", "1\n2"}) {
    const std::string error = error_of([&] { parse_classes("--classes", text); });
    expect_contains(error, "--classes");
    expect_contains(error, "such as 0-4 or 0,3,7-9");
    EXPECT_EQ(error.find('\n'), std::string::npos);
    EXPECT_LT(error.size(), 500u);
  }
  expect_contains(error_of([&] { parse_classes("--classes", "0-4,3"); }), "class 3 twice");
  expect_contains(error_of([&] { parse_classes("--classes", "4-0"); }), "backwards");
  expect_contains(error_of([&] { parse_classes("--classes", "7"); }), "a single class");
}

SourceConfig config_of(const std::string& data, const std::string& classes = "") {
  SourceConfig config;
  config.data = data;
  config.synthetic_train = 60;
  config.synthetic_test = 30;
  config.synthetic_size = {8, 8};
  config.classes = parse_classes("--classes", classes);
  return config;
}

void expect_kept(const HostSplit& all, const HostSplit& kept, const std::vector<int64_t>& classes) {
  int64_t next = 0;
  ASSERT_EQ(kept.fields.size(), all.fields.size());
  for (int64_t i = 0; i < all.num_samples(); ++i) {
    const auto found = std::ranges::find(classes, all.labels[static_cast<size_t>(i)]);
    if (found == classes.end()) continue;
    ASSERT_LT(next, kept.num_samples());
    EXPECT_EQ(kept.labels[static_cast<size_t>(next)], found - classes.begin());
    for (size_t f = 0; f < all.fields.size(); ++f) {
      const int64_t bytes = all.fields[f].spec.bytes_per_sample();
      EXPECT_EQ(std::memcmp(kept.fields[f].values.get() + next * bytes,
                            all.fields[f].values.get() + i * bytes, static_cast<size_t>(bytes)),
                0);
    }
    next += 1;
  }
  EXPECT_EQ(kept.num_samples(), next);
}

// Every sample of these classes in its order with its bytes, labels from 0 on, names, means of what is left.
void expect_keeps(const HostDataset& all, const HostDataset& kept, const std::string& classes) {
  const std::vector<int64_t> chosen = parse_classes("--classes", classes);
  expect_kept(all.train, kept.train, chosen);
  expect_kept(all.test, kept.test, chosen);
  expect_kept(all.validation, kept.validation, chosen);
  EXPECT_EQ(kept.has_validation(), all.has_validation());
  ASSERT_EQ(kept.class_names.size(), chosen.size());
  for (size_t i = 0; i < chosen.size(); ++i)
    EXPECT_EQ(kept.class_names[i], all.class_names[static_cast<size_t>(chosen[i])]);
  for (size_t f = 0; f < kept.train.fields.size(); ++f) {
    EXPECT_EQ(kept.statistics[f].mean,
              compute_statistics(kept.train.fields[f], kept.train.num_samples()).mean);
    EXPECT_NE(kept.statistics[f].mean, all.statistics[f].mean);
  }
}

void expect_keeps(const std::string& data, const std::string& classes) {
  SCOPED_TRACE(data);
  expect_keeps(load_source(config_of(data), {}), load_source(config_of(data, classes), {}), classes);
}

TEST(ClassChoice, KeepsSamplesOfSyntheticData) {
  expect_keeps("synthetic:shapes10", "0-4");
  expect_keeps("synthetic:shapes10", "1,3,7-9");
  expect_keeps("synthetic:rgbd", "0,2,3");  // of both fields
}

// As load_source() does it: a whole release is too large for a test.
TEST(ClassChoice, KeepsSamplesOfCifar) {
  const CifarFolder folder;
  const CifarFormat format = tiny_format(10, 35);
  folder.write("", binary_files(format));
  const HostDataset all = load_cifar_release(format, folder.string(), {});
  expect_keeps(all, with_classes(all, {0, 5, 6, 7}), "0,5-7");
}

TEST(ClassChoice, KeepsSamplesOfAFolder) {
  const TemporaryFolder folder;
  for (const char* split : {"train", "test", "val"})
    for (uint8_t i = 0; i < 4; ++i)
      for (uint8_t sample = 0; sample < 3; ++sample)
        folder.write(fmt::format("{}/{}/{}.png", split, "abcd"[i], sample),
                     flat_png(4, 4, static_cast<uint8_t>(i * 10 + sample)));
  expect_keeps("folder:" + folder.string(), "1,3");
}

// Class 2 has a name and no sample.
HostDataset with_an_empty_class() {
  HostDataset dataset = load_source(config_of("synthetic:shapes10"), {});
  for (HostSplit* split : {&dataset.train, &dataset.test})
    for (int64_t& label : split->labels)
      if (label == 2) label = 3;
  dataset.validation = dataset.test;
  return dataset;
}

TEST(ClassChoice, KeepsTheNameOfAClassWithoutSamples) {
  const TemporaryFolder folder;
  write_safetensors(with_an_empty_class(), folder / "a.safetensors", {});
  const std::string data = "safetensors:" + (folder / "a.safetensors");
  expect_keeps(data, "0-4");
  const HostDataset kept = load_source(config_of(data, "2,3"), {});
  EXPECT_EQ(kept.class_names, (std::vector<std::string>{with_an_empty_class().class_names[2],
                                                        with_an_empty_class().class_names[3]}));
  EXPECT_EQ(std::ranges::count(kept.train.labels, 0), 0);
  EXPECT_GT(std::ranges::count(kept.train.labels, 1), 0);
}

TEST(ClassChoice, RefusesClassesThatThereAreNoneOfOrThatLeaveNothing) {
  expect_contains(error_of([] { load_source(config_of("synthetic:shapes10", "0,10"), {}); }),
                  "--classes 0,10: this data has 10 classes, 0 to 9: 10 is none of them");
  HostDataset dataset = with_an_empty_class();
  for (const std::vector<int64_t>& wrong : {std::vector<int64_t>{3, 1}, {1, 1}, {-1, 2}})
    expect_contains(error_of([&] { with_classes(dataset, wrong); }), "numbers from 0 on that rise");
  for (int64_t& label : dataset.train.labels)
    if (label == 1) label = 0;
  expect_contains(error_of([&] { with_classes(dataset, {1, 2}); }), "no sample of the train split");
}

// A key of the cache: two choices of one source are two datasets, and no path looks like a choice.
TEST(ClassChoice, IsPartOfTheSourcesCanonicalName) {
  EXPECT_EQ(canonical_source(config_of("cifar10:/a", "4,0-3")), "cifar10[0-4]:/a");
  EXPECT_EQ(canonical_source(config_of("cifar10:/a")), "cifar10:/a");
  EXPECT_NE(canonical_source(config_of("synthetic:shapes10", "0-4")),
            canonical_source(config_of("synthetic:shapes10", "0-3")));
  EXPECT_EQ(load_source(config_of("synthetic:shapes10", "0-4"), {}).origin,
            canonical_source(config_of("synthetic:shapes10", "0-4")));
}

TEST(ClassChoice, IsRefusedForImagesWithoutLabels) {
  const TemporaryFolder folder;
  folder.write("a.png", flat_png(4, 4, 1));
  EXPECT_TRUE(load_unlabelled(config_of("folder:" + folder.string()), {}));
  expect_contains(error_of([&] { load_unlabelled(config_of("folder:" + folder.string(), "0-1"), {}); }),
                  "--classes 0,1");
}

}  // namespace
}  // namespace espalier::data
