#include "espalier/core/files/safetensors_writer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "espalier/core/error.h"
#include "espalier/core/files/mapped.h"
#include "tests/support/temporary_folder.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

class SafetensorsWriterTest : public testing::Test {
 protected:
  // The sentence that the constructor fails with.
  std::string refusal(const std::vector<TensorSpec>& tensors, const Metadata& metadata = {}) const {
    try {
      SafetensorsWriter writer(path_, tensors, metadata);
    } catch (const Error& error) {
      return error.what();
    }
    return "accepted";
  }

  bool is_folder_empty() const { return fs::is_empty(folder_); }

  support::TemporaryFolder temporary_;
  fs::path folder_ = temporary_.path();
  std::string path_ = (folder_ / "out.safetensors").string();
};

std::span<const std::byte> bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST_F(SafetensorsWriterTest, WritesWhatTheReaderReads) {
  const std::vector<TensorSpec> tensors = {{"x \"quoted\" \xE2\x82\xAC", StoredType::kF32, {1, 2}},
                                           {"scalar", StoredType::kBF16, {}},
                                           {"none", StoredType::kI64, {0, 7}},
                                           {"bytes", StoredType::kBool, {3}}};
  const Metadata metadata = {{"epoch", "7"}, {"line\nbreak", "tab\t\"\xF0\x9F\x8C\xB1\""}, {"empty", ""}};
  SafetensorsWriter writer(path_, tensors, metadata);
  EXPECT_EQ(writer.data_bytes(), 13);
  writer.write(bytes_of_text("ABCDE"));  // pieces need not end where tensors do
  writer.write(bytes_of_text(""));
  writer.write(bytes_of_text("FGHIJKLM"));
  EXPECT_FALSE(fs::exists(path_));
  writer.commit();

  const auto file = map_file(path_);
  const auto header = parse_safetensors(file.bytes(), path_);
  EXPECT_EQ(header.metadata, metadata);
  ASSERT_EQ(header.tensors.size(), 4u);
  const std::vector<std::string> want = {"ABCDEFGH", "IJ", "", "KLM"};
  // The empty tensor and the one after it begin at the same byte, the empty one first.
  for (size_t i = 0; i < 4; ++i) {
    const auto& tensor = header.tensors[i];
    EXPECT_EQ(tensor.name, tensors[i].name);
    EXPECT_EQ(tensor.type, tensors[i].type);
    EXPECT_EQ(tensor.shape, tensors[i].shape);
    const auto* begin = reinterpret_cast<const char*>(file.data.get()) + tensor.offset_bytes;
    EXPECT_EQ(std::string(begin, static_cast<size_t>(tensor.length_bytes)), want[i]);
  }
}

TEST_F(SafetensorsWriterTest, AlignsTheDataToEightBytes) {
  for (size_t length = 1; length <= 9; ++length) {
    const std::vector<TensorSpec> tensors = {{std::string(length, 'n'), StoredType::kU8, {0}}};
    SafetensorsWriter writer(path_, tensors, {});
    writer.commit();
    EXPECT_EQ(fs::file_size(path_) % 8, 0u);
    const auto file = map_file(path_);
    EXPECT_EQ(file.bytes()[8], std::byte{'{'});
    EXPECT_EQ(parse_safetensors(file.bytes(), path_).tensors.at(0).name, tensors[0].name);
  }
}

TEST_F(SafetensorsWriterTest, WritesAFileWithoutTensors) {
  SafetensorsWriter writer(path_, {}, {});
  writer.commit();
  EXPECT_TRUE(parse_safetensors(map_file(path_).bytes(), path_).tensors.empty());
}

TEST_F(SafetensorsWriterTest, RefusesToCommitWhenBytesAreMissing) {
  {
    SafetensorsWriter writer(path_, {{"a", StoredType::kU8, {3}}}, {});
    writer.write(bytes_of_text("AB"));
    EXPECT_THROW(writer.commit(), Error);
  }
  EXPECT_TRUE(is_folder_empty());
}

TEST_F(SafetensorsWriterTest, RefusesMoreBytesThanPromised) {
  SafetensorsWriter writer(path_, {{"a", StoredType::kU8, {3}}}, {});
  EXPECT_THROW(writer.write(bytes_of_text("ABCD")), Error);
}

TEST_F(SafetensorsWriterTest, RefusesNamesThatTheFormatCannotHold) {
  EXPECT_EQ(refusal({{"a", StoredType::kU8, {0}}, {"a", StoredType::kU8, {0}}}),
            path_ + ": cannot hold a second tensor named \"a\"");
  EXPECT_EQ(refusal({{"__metadata__", StoredType::kU8, {0}}}),
            path_ + ": cannot hold a second tensor named \"__metadata__\"");
  EXPECT_EQ(refusal({{"\xFF", StoredType::kU8, {0}}}),
            path_ + ": cannot hold the text \"\\xff\": it is not UTF-8");
  EXPECT_EQ(refusal({}, {{"k", "\xFF"}}), path_ + ": cannot hold the text \"\\xff\": it is not UTF-8");
  EXPECT_TRUE(is_folder_empty());
}

TEST_F(SafetensorsWriterTest, RefusesSizesThatOverflow) {
  EXPECT_EQ(refusal({{"a", StoredType::kU8, {int64_t{1} << 62, 2}}}),
            "tensor \"a\" has a shape whose size in bytes does not fit into 63 bits");
  EXPECT_EQ(refusal({{"a", StoredType::kU8, {int64_t{1} << 62}}, {"b", StoredType::kU8, {int64_t{1} << 62}}}),
            path_ + ": its tensors together do not fit into 2^63 bytes");
  EXPECT_EQ(refusal({{"a", StoredType::kU8, {-1}}}), "tensor \"a\" has the negative extent -1");
}

}  // namespace
}  // namespace espalier
