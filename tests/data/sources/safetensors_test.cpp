#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "espalier/core/error.h"
#include "espalier/core/files/safetensors_writer.h"
#include "espalier/data/sources/source.h"
#include "tests/data/sources/messages.h"
#include "tests/support/temporary_folder.h"

namespace espalier::data {
namespace {

namespace fs = std::filesystem;

HostField make_field(const FieldSpec& spec, int64_t num_samples, uint64_t seed) {
  const NewField made = allocate_field(spec, num_samples);
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < made.field.size_bytes; ++i) made.values.get()[i] = static_cast<std::byte>(random());
  return made.field;
}

// Fields not in alphabetical order, the one-byte one first: neither order may be lost.
HostDataset small_dataset() {
  HostDataset dataset;
  dataset.class_names = {"cat", "\xE2\x82\xAC \"quoted\"", ""};
  dataset.train.labels = {0, 1, 2, 2, 1};
  dataset.test.labels = {2, 0};
  const FieldSpec rgb{"rgb", SampleType::kU8, 2, 3, 3};
  const FieldSpec depth{"depth", SampleType::kU16, 2, 3, 1};
  dataset.train.fields = {make_field(rgb, 5, 1), make_field(depth, 5, 2)};
  dataset.test.fields = {make_field(rgb, 2, 3), make_field(depth, 2, 4)};
  for (const auto& field : dataset.train.fields) dataset.statistics.push_back(compute_statistics(field, 5));
  return dataset;
}

void expect_equal(const HostSplit& a, const HostSplit& b) {
  EXPECT_EQ(a.labels, b.labels);
  ASSERT_EQ(a.fields.size(), b.fields.size());
  for (size_t i = 0; i < a.fields.size(); ++i) {
    ASSERT_EQ(a.fields[i].spec, b.fields[i].spec);
    const auto size_bytes = static_cast<size_t>(a.num_samples() * a.fields[i].spec.bytes_per_sample());
    EXPECT_EQ(std::memcmp(a.fields[i].values.get(), b.fields[i].values.get(), size_bytes), 0);
  }
}

TEST(SafetensorsSource, KeepsAValidationSplitOfItsOwn) {
  const support::TemporaryFolder folder;
  HostDataset dataset = small_dataset();
  dataset.validation.labels = {1, 1, 0};
  dataset.validation.fields = {make_field(dataset.train.fields[0].spec, 3, 5),
                               make_field(dataset.train.fields[1].spec, 3, 6)};
  write_safetensors(dataset, folder / "a", {});
  const HostDataset again = load_safetensors(folder / "a", {});
  expect_equal(again.train, dataset.train);
  expect_equal(again.validation, dataset.validation);
  expect_equal(again.test, dataset.test);
}

// What a file is made of, for files that write_safetensors() would never write.
struct Parts {
  Metadata metadata = {{"class_names", R"(["a","b"])"}};
  std::vector<std::pair<TensorSpec, std::string>> tensors = {
      {{"train.labels", StoredType::kI64, {2}}, std::string("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 16)},
      {{"test.labels", StoredType::kI64, {1}}, std::string(8, '\0')},
      {{"train.image", StoredType::kU8, {2, 1, 2, 1}}, "ABCD"},
      {{"test.image", StoredType::kU8, {1, 1, 2, 1}}, "EF"},
  };
};

class SafetensorsSourceTest : public ::testing::Test {
 protected:
  void write(const Parts& parts) const {
    std::vector<TensorSpec> specs;
    std::string data;
    for (const auto& [spec, values] : parts.tensors) {
      specs.push_back(spec);
      data += values;
    }
    SafetensorsWriter writer(path_, specs, parts.metadata);
    writer.write(std::as_bytes(std::span(data)));
    writer.commit();
  }

  std::string refusal() const {
    try {
      check_dataset(load_safetensors(path_, {}));
    } catch (const Error& error) {
      const std::string message = error.what();
      return message.starts_with(path_ + ": ") ? message.substr(path_.size() + 2) : message;
    }
    return "accepted";
  }

  std::string refusal(const Parts& parts) const {
    write(parts);
    return refusal();
  }

  support::TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
  std::string path_ = (folder_ / "data.safetensors").string();
};

TEST_F(SafetensorsSourceTest, ReadsBackWhatWasWritten) {
  const auto dataset = small_dataset();
  write_safetensors(dataset, path_, {});
  const auto loaded = load_safetensors(path_, {});
  check_dataset(loaded);
  EXPECT_EQ(loaded.origin, "safetensors:" + fs::canonical(path_).string());
  EXPECT_EQ(loaded.class_names, dataset.class_names);
  expect_equal(loaded.train, dataset.train);
  expect_equal(loaded.test, dataset.test);
  ASSERT_EQ(loaded.statistics.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {  // bit for bit: the text form of a double is exact
    EXPECT_EQ(loaded.statistics[i].mean, dataset.statistics[i].mean);
    EXPECT_EQ(loaded.statistics[i].stddev, dataset.statistics[i].stddev);
  }
}

TEST_F(SafetensorsSourceTest, AlignsSixteenBitFieldsAndViewsTheMapping) {
  write_safetensors(small_dataset(), path_, {});
  const auto loaded = load_safetensors(path_, {});
  for (const auto* split : {&loaded.train, &loaded.test}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(split->fields[1].values.get()) % 2, 0u);
  }
  // One owner for all four: the mapping, not four buffers.
  EXPECT_FALSE(loaded.train.fields[0].values.owner_before(loaded.test.fields[1].values));
  EXPECT_FALSE(loaded.test.fields[1].values.owner_before(loaded.train.fields[0].values));
}

TEST_F(SafetensorsSourceTest, KeepsTheDataAfterTheFileIsGone) {
  const auto dataset = small_dataset();
  write_safetensors(dataset, path_, {});
  const auto loaded = load_safetensors(path_, {});
  fs::remove(path_);
  expect_equal(loaded.train, dataset.train);
}

TEST_F(SafetensorsSourceTest, OverwritesTheFileItWasLoadedFrom) {
  const auto dataset = small_dataset();
  write_safetensors(dataset, path_, {});
  const auto loaded = load_safetensors(path_, {});
  write_safetensors(loaded, path_, {});
  expect_equal(load_safetensors(path_, {}).train, dataset.train);
}

TEST_F(SafetensorsSourceTest, ReadsSixteenBitValuesAtAnOddOffset) {
  Parts parts;
  parts.tensors[2] = {{"train.image", StoredType::kU8, {2, 1, 1, 1}}, "AB"};
  parts.tensors[3] = {{"test.image", StoredType::kU8, {1, 1, 1, 1}}, "C"};
  parts.tensors.push_back({{"train.depth", StoredType::kU16, {2, 1, 1, 1}}, std::string("\1\2\3\4", 4)});
  parts.tensors.push_back({{"test.depth", StoredType::kU16, {1, 1, 1, 1}}, std::string("\5\6", 2)});
  write(parts);
  const auto loaded = load_safetensors(path_, {});
  const auto* values = reinterpret_cast<const uint16_t*>(loaded.train.fields.at(1).values.get());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(values) % 2, 0u);
  EXPECT_EQ(values[0], 0x0201);
  EXPECT_EQ(values[1], 0x0403);
}

TEST_F(SafetensorsSourceTest, ComputesStatisticsThatTheFileDoesNotHold) {
  write(Parts{});
  const auto loaded = load_safetensors(path_, {});
  const auto want = compute_statistics(loaded.train.fields[0], 2);
  EXPECT_EQ(loaded.statistics.at(0).mean, want.mean);
  EXPECT_EQ(loaded.statistics.at(0).stddev, want.stddev);
  EXPECT_NEAR(want.mean.at(0), (65 + 66 + 67 + 68) / 4.0 / 255, 1e-12);
}

TEST_F(SafetensorsSourceTest, TellsItsProgress) {
  std::vector<int64_t> done;
  int64_t total = -1;
  write_safetensors(small_dataset(), path_, [&](std::string_view what, int64_t now, int64_t of) {
    EXPECT_EQ(what, "write " + path_);
    done.push_back(now);
    total = of;
  });
  EXPECT_EQ(done.front(), 0);
  EXPECT_EQ(done.back(), total);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
}

TEST_F(SafetensorsSourceTest, LeavesNothingBehindWhenWritingIsInterrupted) {
  const auto stop = [](std::string_view, int64_t done, int64_t) {
    if (done > 0) throw std::runtime_error("interrupted");
  };
  EXPECT_THROW(write_safetensors(small_dataset(), path_, stop), std::runtime_error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SafetensorsSourceTest, RefusesNamesItCannotWrite) {
  auto dataset = small_dataset();
  dataset.class_names[1] = "\xFF";
  EXPECT_THROW(write_safetensors(dataset, path_, {}), Error);
  dataset = small_dataset();
  dataset.train.fields[0].spec.name = dataset.test.fields[0].spec.name = "labels";
  EXPECT_THROW(write_safetensors(dataset, path_, {}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(SafetensorsSourceTest, AcceptsAnEmptyTestSplit) {
  Parts parts;
  parts.tensors[1] = {{"test.labels", StoredType::kI64, {0}}, ""};
  parts.tensors[3] = {{"test.image", StoredType::kU8, {0, 1, 2, 1}}, ""};
  EXPECT_EQ(refusal(parts), "accepted");
}

// Found by fuzzing: without samples a shape may state anything, and every channel has statistics.
TEST_F(SafetensorsSourceTest, RefusesMoreChannelsThanAnySampleHas) {
  Parts parts;
  parts.tensors[0] = {{"train.labels", StoredType::kI64, {0}}, ""};
  parts.tensors[2] = {{"train.image", StoredType::kU8, {0, 1, 1, int64_t{1} << 60}}, ""};
  EXPECT_EQ(refusal(parts), "tensor \"train.image\" has 1152921504606846976 channels, want at most 65535");
}

TEST_F(SafetensorsSourceTest, RefusesAFileWithoutClassNames) {
  Parts parts;
  parts.metadata.clear();
  EXPECT_EQ(refusal(parts), "has no class names; want the metadata \"class_names\", a JSON array of strings");
}

TEST_F(SafetensorsSourceTest, RefusesMetadataThatIsNotAFlatArray) {
  for (const std::string text : {"", "a", "{}", "[1]", "[\"a\"", "[[\"a\"]]", "[\"a\"]x", "null"}) {
    Parts parts;
    parts.metadata["class_names"] = text;
    const auto message = refusal(parts);
    EXPECT_TRUE(message.starts_with("metadata \"class_names\": want a JSON array of strings, got \""))
        << message;
  }
}

TEST_F(SafetensorsSourceTest, RefusesStatisticsThatCannotBe) {
  const auto with = [&](const std::string& mean, const std::string& stddev) {
    Parts parts;
    if (!mean.empty()) parts.metadata["mean.image"] = mean;
    if (!stddev.empty()) parts.metadata["std.image"] = stddev;
    return refusal(parts);
  };
  EXPECT_EQ(with("[0.5]", "[0]"), "accepted");
  EXPECT_EQ(with("[0.5]", ""),
            "field \"image\" has only one of the metadata \"mean.<field>\" and \"std.<field>\", want both or "
            "neither");
  EXPECT_EQ(with("[0.5,0.5]", "[0.5]"),
            "field \"image\" has 1 channels, but a mean or standard deviation for 2");
  EXPECT_EQ(with("[127]", "[0.5]"),
            "field \"image\" has a mean or standard deviation of 127, want 0 to 1: values are scaled by 255 "
            "or 65535");
  EXPECT_EQ(with("[-0.1]", "[0.5]"),
            "field \"image\" has a mean or standard deviation of -0.1, want 0 to 1: values are scaled by 255 "
            "or 65535");
  for (const std::string text : {"[NaN]", "[1e999]", "[\\\"x\\\"]", "0.5", "[true]"}) {
    EXPECT_EQ(with(text, "[0.5]").find("metadata \"mean.image\": want a JSON array of numbers, got"), 0u)
        << text;
  }
}

TEST_F(SafetensorsSourceTest, RefusesALabelOutsideTheClasses) {
  Parts parts;
  parts.tensors[0].second[8] = 2;
  EXPECT_EQ(refusal(parts), "train.labels[1] is 2, want 0 to 1: the file names 2 classes");
  parts.tensors[0].second[15] = '\xFF';
  EXPECT_EQ(refusal(parts), "train.labels[1] is -72057594037927934, want 0 to 1: the file names 2 classes");
}

TEST_F(SafetensorsSourceTest, RefusesTensorsOfTheWrongTypeOrShape) {
  Parts parts;
  parts.tensors[1] = {{"test.labels", StoredType::kI32, {1}}, std::string(4, '\0')};
  EXPECT_EQ(refusal(parts), "tensor \"test.labels\" is I32 of rank 1, want I64 of rank 1");
  parts = {};
  parts.tensors[1].first.shape = {1, 1};
  EXPECT_EQ(refusal(parts), "tensor \"test.labels\" is I64 of rank 2, want I64 of rank 1");
  parts = {};
  parts.tensors[2] = {{"train.image", StoredType::kF32, {2, 1, 1, 1}}, std::string(8, '\0')};
  EXPECT_EQ(refusal(parts), "tensor \"train.image\" is F32 of rank 4, want U8 or U16 of rank 4, [N,H,W,C]");
  parts = {};
  parts.tensors[2].first.shape = {2, 1, 2};
  EXPECT_EQ(refusal(parts), "tensor \"train.image\" is U8 of rank 3, want U8 or U16 of rank 4, [N,H,W,C]");
  parts = {};
  parts.tensors[2].first.shape = {1, 2, 2, 1};
  EXPECT_EQ(refusal(parts), "tensor \"train.image\" has 1 samples, but there are 2 labels");
  parts = {};
  parts.tensors[3] = {{"test.image", StoredType::kU8, {1, 1, 0, 1}}, ""};
  EXPECT_EQ(refusal(parts),
            "tensor \"test.image\" has samples of 1x0x1, want sides of at least 1 that fit in memory");
}

TEST_F(SafetensorsSourceTest, RefusesSampleSizesThatOverflowInAnEmptySplit) {
  Parts parts;
  parts.tensors[1] = {{"test.labels", StoredType::kI64, {0}}, ""};
  parts.tensors[3] = {{"test.image", StoredType::kU8, {0, int64_t{1} << 40, int64_t{1} << 40, 1}}, ""};
  EXPECT_EQ(refusal(parts),
            "tensor \"test.image\" has samples of 1099511627776x1099511627776x1, want sides of at least 1 "
            "that fit in "
            "memory");
}

TEST_F(SafetensorsSourceTest, RefusesFieldsThatDoNotMatchTheTensors) {
  Parts parts;
  parts.tensors.pop_back();
  EXPECT_EQ(refusal(parts), "has no tensor \"test.image\"");
  parts = {};
  parts.tensors.push_back({{"val.image", StoredType::kU8, {1}}, "x"});
  EXPECT_EQ(refusal(parts),
            "tensor \"val.image\" is not part of a dataset; want train., test. or validation. followed by "
            "labels or one of its fields");
  parts = {};
  parts.metadata["fields"] = R"(["image","depth"])";
  EXPECT_EQ(refusal(parts), "has no tensor \"train.depth\"");
  parts.metadata["fields"] = R"(["image","image"])";
  EXPECT_EQ(refusal(parts), "\"image\" cannot be the name of a field, or names two of them");
  parts.metadata["fields"] = R"(["labels"])";
  EXPECT_EQ(refusal(parts), "\"labels\" cannot be the name of a field, or names two of them");
  parts.metadata["fields"] = "[]";
  EXPECT_EQ(refusal(parts), "has no field; want tensors named train.<field> and test.<field>");
}

TEST_F(SafetensorsSourceTest, NamesAMissingFile) {
  EXPECT_EQ(refusal(), "cannot be opened: No such file or directory");
}

TEST_F(SafetensorsSourceTest, LoadsOrRefusesEveryDamagedFile) {
  constexpr uint64_t kSeed = 77;
  write_safetensors(small_dataset(), path_, {});
  std::ifstream in(path_, std::ios::binary);
  const std::string whole(std::istreambuf_iterator<char>(in), {});
  std::mt19937_64 random(kSeed);
  int num_refused = 0, num_accepted = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string file = whole;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      file[random() % file.size()] = static_cast<char>(random());
    }
    if (i % 3 == 0) file.resize(random() % file.size());
    fs::remove(path_);  // some file systems flush a file that is cut and written again, not a new one
    std::ofstream(path_, std::ios::binary) << file;
    HostDataset loaded;
    const std::string message = testing::error_of([&] {
      loaded = load_safetensors(path_, {});
      check_dataset(loaded);
    });
    if (!message.empty()) {
      ++num_refused;
      // What the content contradicts is told of the dataset, whose file is the only one.
      testing::expect_sentence(message, message.starts_with("dataset: ") ? "dataset" : path_);
      continue;
    }
    ++num_accepted;
    // All values can be read: a sanitizer sees one that lies outside of the file.
    for (const HostSplit* split : {&loaded.train, &loaded.test})
      for (const HostField& field : split->fields) {
        ASSERT_EQ(field.size_bytes, split->num_samples() * field.spec.bytes_per_sample());
        ASSERT_LE(field.size_bytes, static_cast<int64_t>(file.size()));
        compute_statistics(field, split->num_samples());
      }
  }
  EXPECT_GT(num_refused, 1000) << "seed " << kSeed;
  EXPECT_GT(num_accepted, 100) << "seed " << kSeed << ": damage to a pixel is seen by nobody";
}

TEST_F(SafetensorsSourceTest, LoadsTheSizeOfCifar10InATenthOfASecond) {
  // All zeros but the header, so the file costs no disk.
  const std::string header =
      R"({"__metadata__":{"class_names":"[\"a\",\"b\"]","mean.image":"[0,0,0]","std.image":"[0,0,0]"},)"
      R"("train.labels":{"dtype":"I64","shape":[50000],"data_offsets":[0,400000]},)"
      R"("test.labels":{"dtype":"I64","shape":[10000],"data_offsets":[400000,480000]},)"
      R"("train.image":{"dtype":"U8","shape":[50000,32,32,3],"data_offsets":[480000,154080000]},)"
      R"("test.image":{"dtype":"U8","shape":[10000,32,32,3],"data_offsets":[154080000,184800000]}})";
  const uint64_t length = header.size();
  std::ofstream(path_, std::ios::binary).write(reinterpret_cast<const char*>(&length), 8) << header;
  fs::resize_file(path_, 8 + length + 184800000);
  // The best of three: the machine may be busy with other tests.
  double best_ms = 1e9;
  for (int i = 0; i < 3; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const auto loaded = load_safetensors(path_, {});
    check_dataset(loaded);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
    best_ms = std::min(best_ms, took.count());
  }
  RecordProperty("load_ms", std::to_string(best_ms));
  EXPECT_LT(best_ms, 100);
}

}  // namespace
}  // namespace espalier::data
