#include "espalier/data/sources/cifar/release.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "espalier/data/sources/cifar/binary.h"
#include "espalier/data/sources/source.h"
#include "tests/data/sources/cifar_files.h"
#include "tests/data/sources/messages.h"

namespace espalier::data {

namespace {

using namespace testing;

// Everything a tiny release must have become.
void expect_tiny_release(const CifarFormat& format, const HostDataset& dataset) {
  check_dataset(dataset);
  EXPECT_EQ(dataset.class_names, other_names(format));
  EXPECT_EQ(dataset.train.num_samples(), format.num_images(true));
  EXPECT_EQ(dataset.test.num_samples(), format.num_images(false));
  for (size_t b = 0; b < format.batches.size(); ++b) {
    const CifarBatch& batch = format.batches[b];
    const HostSplit& split = batch.is_train ? dataset.train : dataset.test;
    EXPECT_EQ(
        split.fields[0].spec,
        (FieldSpec{.name = "image", .type = SampleType::kU8, .height = 32, .width = 32, .channels = 3}));
    for (int64_t i = 0; i < batch.num_images; ++i) {
      const int64_t sample = batch.first_image + i;
      EXPECT_EQ(split.labels[static_cast<size_t>(sample)], label_of(format, b, i));
      const std::byte* image = split.fields[0].values.get() + sample * kCifarImageBytes;
      int64_t num_wrong = 0;
      for (int64_t k = 0; k < kCifarImageBytes; ++k) {
        const int64_t pixel = k / 3, channel = k % 3;
        num_wrong += std::to_integer<uint8_t>(image[k]) != value_of(b, i, channel * 1024 + pixel) ? 1 : 0;
      }
      EXPECT_EQ(num_wrong, 0) << batch.name << " image " << i;
    }
  }
}

HostDataset load(const CifarFormat& format, const std::string& place) {
  return load_cifar_release(format, place, {});
}

std::string error_for(const CifarFormat& format, const std::string& place) {
  return error_of([&] { load(format, place); });
}

std::string archive_error(const CifarFormat& format, const std::string& archive) {
  return error_of([&] { load_cifar_archive(format, read_from(bytes_of_string(archive)), "a.tar.gz", {}); });
}

class CifarKinds : public ::testing::TestWithParam<int> {};

}  // namespace

TEST_P(CifarKinds, LoadTheSameFromEveryForm) {
  const CifarFormat format = tiny_format(GetParam(), 35);  // more images than are decoded at once
  for (const bool is_binary : {true, false}) {
    const Files files = is_binary ? binary_files(format) : python_files(format);
    const size_t version = is_binary ? 0 : 1;
    const std::string archive = gzip(tar_of(format.folders[version], files));
    const CifarFolder folder;
    folder.write("direct", files);
    folder.write("below/" + format.folders[version], files);
    folder.write("packed/" + format.archives[version], archive);
    folder.write("renamed.download", archive);
    for (const char* place : {"direct", "below", "packed", "renamed.download"}) {
      SCOPED_TRACE(place);
      expect_tiny_release(format, load(format, folder / place));
    }
  }
}

TEST_P(CifarKinds, GoByContentNotByName) {
  const CifarFormat format = tiny_format(GetParam());
  const CifarFolder folder;
  Files files = python_files(format);
  for (size_t i = 0; i < format.batches.size(); ++i) files[i].first += ".bin";
  folder.write("", files);
  expect_tiny_release(format, load(format, folder.string()));
}

TEST_P(CifarKinds, UseBuiltInNamesWithoutMetaFile) {
  const CifarFormat format = tiny_format(GetParam());
  const CifarFolder folder;
  Files files = binary_files(format);
  files.pop_back();
  folder.write("", files);
  EXPECT_EQ(load(format, folder.string()).class_names, format.class_names);
  EXPECT_EQ(static_cast<int64_t>(format.class_names.size()), format.num_classes);
}

INSTANTIATE_TEST_SUITE_P(Cifar, CifarKinds, ::testing::Values(10, 100));

TEST(Cifar, ReadsColumnMajorArrays) {
  const CifarFormat format = tiny_format(10, 35);
  Files files = python_files(format);
  for (size_t b = 0; b < format.batches.size(); ++b) {
    std::string rows, columns;
    for (int64_t i = 0; i < 35; ++i) rows += image_bytes(b, i);
    for (size_t k = 0; k < 3072; ++k) {
      for (size_t i = 0; i < 35; ++i) columns += rows[i * 3072 + k];
    }
    std::string& content = files[b].second;
    const size_t at = content.find(rows);
    ASSERT_NE(at, std::string::npos);
    content.replace(at, rows.size(), columns);
    content[at - 6] = '\x88';
  }
  const CifarFolder folder;
  folder.write("", files);
  expect_tiny_release(format, load(format, folder.string()));
}

TEST(Cifar, ReportsProgressUpToTheTotal) {
  const CifarFormat format = tiny_format(10);
  const CifarFolder folder;
  folder.write("", binary_files(format));
  std::vector<int64_t> done;
  load_cifar_release(format, folder.string(), [&](std::string_view, int64_t at, int64_t total) {
    EXPECT_EQ(total, 12);
    done.push_back(at);
  });
  EXPECT_EQ(done, (std::vector<int64_t>{2, 4, 6, 8, 10, 12}));
}

TEST(Cifar, NamesAMissingBatch) {
  const CifarFormat format = tiny_format(10);
  Files files = binary_files(format);
  files.erase(files.begin() + 2);
  const CifarFolder folder;
  folder.write("", files);
  expect_contains(error_for(format, folder.string()), "data_batch_3.bin is missing, expected all 6");
  expect_contains(archive_error(format, gzip(tar_of("f", files))), "a.tar.gz: no data_batch_3 in it");
}

TEST(Cifar, NamesBothSizesOfAWrongFile) {
  const CifarFormat format = tiny_format(10);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{3073}, size_t{6145}, size_t{6147}, size_t{50000}}) {
    Files files = binary_files(format);
    files[1].second.resize(size);
    const CifarFolder folder;
    folder.write("", files);
    const std::string expected = fmt::format("data_batch_2.bin: {} bytes, expected 6146", size);
    expect_contains(error_for(format, folder.string()), expected);
    expect_contains(archive_error(format, gzip(tar_of("f", files))), expected);
  }
}

TEST(Cifar, NamesFileIndexAndValueOfALabelOutOfRange) {
  const CifarFormat ten = tiny_format(10, 40);
  Files files = binary_files(ten);
  files[3].second[39 * 3073] = 10;
  const CifarFolder folder;
  folder.write("bin", files);
  expect_contains(error_for(ten, folder / "bin"), "data_batch_4.bin: image 39 has label 10, expected 0 to 9");

  const CifarFormat hundred = tiny_format(100);
  files = binary_files(hundred);
  files[1].second[3074] = 20;  // coarse
  folder.write("coarse", files);
  expect_contains(error_for(hundred, folder / "coarse"), "test.bin: image 1 has label 20, expected 0 to 19");

  files = python_files(hundred);
  std::string& pickle = files[0].second;
  pickle[pickle.find("(K") + 2] = 'd';  // 100
  folder.write("py", files);
  expect_contains(error_for(hundred, folder / "py"), "train: image 0 has label 100, expected 0 to 99");
}

TEST(Cifar, PointsToTheRightSource) {
  const CifarFolder folder;
  folder.write("ten", binary_files(tiny_format(10)));
  folder.write("hundred", python_files(tiny_format(100)));
  folder.write("images/train/cat/1.png", "x");
  folder.write("empty/readme", "x");
  folder.write("text.tar.gz", "x");
  folder.write("hundred.tar.gz", gzip(tar_of("f", binary_files(tiny_format(100)))));
  const CifarFormat format = tiny_format(10);
  expect_contains(error_for(tiny_format(100), folder / "ten"),
                  "this is cifar10, expected cifar100; write cifar10:");
  expect_contains(error_for(format, folder / "hundred"),
                  "this is cifar100, expected cifar10; write cifar100:");
  expect_contains(error_for(format, folder / "hundred.tar.gz"), "this is cifar100, expected cifar10");
  expect_contains(error_for(format, folder / "images"), "write folder:");
  expect_contains(error_for(tiny_format(100), folder / "images"), "write folder:");
  expect_contains(error_for(format, folder / "empty"),
                  "expected data_batch_1.bin, data_batch_1, cifar-10-binary");
  expect_contains(error_for(format, folder / "nowhere"), "no such file or directory");
  expect_contains(error_for(format, folder / "text.tar.gz"), "not a gzip file");
}

TEST(Cifar, RefusesMetaFilesThatDoNotFit) {
  const CifarFormat format = tiny_format(10);
  for (const std::string& meta : {std::string("cat\ndog\n"), std::string(), std::string(70000, 'x'),
                                  std::string("a\nb\nc\nd\ne\nf\ng\nh\ni\n\x01\n")}) {
    Files files = binary_files(format);
    files.back().second = meta;
    const CifarFolder folder;
    folder.write("", files);
    expect_contains(error_for(format, folder.string()), "batches.meta.txt: ");
    expect_contains(archive_error(format, gzip(tar_of("f", files))), "batches.meta.txt: ");
  }
}

TEST(Cifar, RefusesABatchThatIsThereTwice) {
  const CifarFormat format = tiny_format(10);
  Files files = binary_files(format);
  files.push_back(files[0]);
  expect_contains(archive_error(format, gzip(tar_of("f", files))), "a second 'data_batch_1'");
}

TEST(Cifar, RefusesAnArchiveTruncatedAtEveryLength) {
  const CifarFormat format = tiny_format(10, 1);
  for (const Files& files : {binary_files(format), python_files(format)}) {
    const std::string archive = gzip(tar_of("f", files));
    for (size_t size = 0; size < archive.size(); ++size) {
      EXPECT_NE(archive_error(format, archive.substr(0, size)), "") << "at length " << size;
    }
  }
}

TEST(Cifar, SurvivesRandomDamageToAnArchive) {
  const CifarFormat format = tiny_format(100, 1);
  std::mt19937 random(11);
  for (const Files& files : {binary_files(format), python_files(format)}) {
    const std::string tar = tar_of("f", files);
    const auto load = [&](const std::string& archive) {
      return load_cifar_archive(format, read_from(bytes_of_string(archive)), "a.tar.gz", {});
    };
    const HostDataset whole = load(gzip(tar));
    DamageCount count;
    for (int round = 0; round < 1500; ++round) {
      std::string damaged = tar;
      const unsigned flips = 1 + static_cast<unsigned>(random() % 8);
      for (unsigned i = 0; i < flips; ++i) damaged[random() % damaged.size()] = static_cast<char>(random());
      HostDataset dataset;
      const std::string error = error_of([&] { dataset = load(gzip(damaged)); });
      ++(error.empty() ? count.accepted : count.refused);
      if (!error.empty()) {
        expect_sentence(error, "a.tar.gz");
        continue;
      }
      // Pixels and labels have no checksum: no more of them differ than bytes were damaged.
      EXPECT_EQ(error_of([&] { check_dataset(dataset); }), "") << "round " << round;
      unsigned different = 0;
      for (const auto& [got, want] :
           {std::pair(&dataset.train, &whole.train), std::pair(&dataset.test, &whole.test)}) {
        ASSERT_EQ(got->labels.size(), want->labels.size());
        for (size_t i = 0; i < want->labels.size(); ++i)
          different += got->labels[i] != want->labels[i] ? 1 : 0;
        const HostField &a = got->fields[0], &b = want->fields[0];
        ASSERT_EQ(a.size_bytes, b.size_bytes);
        for (int64_t i = 0; i < b.size_bytes; ++i)
          different += a.values.get()[i] != b.values.get()[i] ? 1 : 0;
      }
      EXPECT_LE(different, flips) << "round " << round;
    }
    EXPECT_GT(count.refused, 50);
    EXPECT_GT(count.accepted, 50);
  }
}

TEST(Cifar, DecodesNoPartialRecord) {
  const std::string bytes(3072, '\0');
  EXPECT_THROW(
      decode_records(tiny_format(10), {.bytes = bytes_of_string(bytes), .file = "f"}, nullptr, nullptr),
      Error);
}

TEST(Cifar, LoadsTheOfficialSizesThroughLoadSource) {
  const CifarFormat format = cifar_format(10);
  std::mt19937_64 random(1);
  const CifarFolder folder;
  std::vector<int64_t> counts(256);  // how often the training split has each red value
  for (const CifarBatch& batch : format.batches) {
    std::string file(static_cast<size_t>(batch.num_images * 3073), '\0');
    for (size_t i = 0; i + 8 <= file.size(); i += 8) {
      const uint64_t word = random();
      std::memcpy(file.data() + i, &word, 8);
    }
    for (size_t i = 0; i < 10000; ++i) {
      file[i * 3073] = static_cast<char>(i % 10);
      if (!batch.is_train) continue;
      for (size_t k = 1; k <= 1024; ++k) ++counts[static_cast<unsigned char>(file[i * 3073 + k])];
    }
    folder.write(batch.name + ".bin", file);
  }
  SourceConfig options;
  options.data = "cifar10:" + folder.string();
  const HostDataset dataset = load_source(options, {});
  EXPECT_EQ(dataset.origin, options.data);
  EXPECT_EQ(dataset.train.num_samples(), 50000);
  EXPECT_EQ(dataset.test.num_samples(), 10000);
  double sum = 0;
  for (size_t v = 0; v < 256; ++v) sum += static_cast<double>(v) * static_cast<double>(counts[v]);
  EXPECT_NEAR(dataset.statistics[0].mean[0], sum / (50000.0 * 1024) / 255, 1e-12);
}

TEST(Cifar, KnowsOnlyTheReleasesWithTenAndAHundredClasses) {
  expect_contains(error_of([] { load_cifar(20, "x", {}); }), "20 classes asked for; expected 10 or 100");
}

}  // namespace espalier::data
