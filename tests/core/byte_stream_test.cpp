#include "espalier/core/byte_stream.h"

#include <gtest/gtest.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tests/support/message.h"

namespace espalier {
namespace {

struct Sample {
  int32_t number = 0;
  std::optional<double> maybe;
  std::vector<double> list;
  std::string text;
  std::vector<std::string> texts;
};

template <class Stream>
void visit(Stream& stream, Sample& sample) {
  stream.plain(sample.number);
  stream.maybe(sample.maybe);
  stream.list(sample.list);
  stream.text(sample.text);
  stream.each(sample.texts, [&](std::string& text) { stream.text(text); });
}

std::vector<std::byte> bytes_of(Sample sample) {
  ByteWriter writer;
  visit(writer, sample);
  return writer.bytes();
}

TEST(ByteStream, BringsEverythingBack) {
  for (const Sample& sample : {Sample{}, Sample{-7, 0.5, {1, 2}, "two\nlines", {"", "x"}}}) {
    const std::vector<std::byte> bytes = bytes_of(sample);
    ByteReader reader(bytes);
    Sample read{1, 2.0, {3}, "4", {"5"}};
    visit(reader, read);
    EXPECT_TRUE(reader.is_at_end());
    EXPECT_EQ(read.number, sample.number);
    EXPECT_EQ(read.maybe, sample.maybe);
    EXPECT_EQ(read.list, sample.list);
    EXPECT_EQ(read.text, sample.text);
    EXPECT_EQ(read.texts, sample.texts);
  }
}

TEST(ByteStream, RefusesAMessageThatIsCutAnywhere) {
  const std::vector<std::byte> bytes = bytes_of({-7, 0.5, {1, 2}, "text", {"x"}});
  for (size_t length = 0; length < bytes.size(); ++length) {
    ByteReader reader(std::span<const std::byte>(bytes).first(length));
    Sample read;
    EXPECT_ERROR(visit(reader, read), Error, "message between ranks");
  }
}

TEST(ByteStream, RefusesALengthThatNoMessageHas) {
  std::vector<std::byte> bytes(16, std::byte{0xff});
  ByteReader reader(bytes);
  std::vector<double> list;
  EXPECT_ERROR(reader.list(list), Error, "damaged");
}

}  // namespace
}  // namespace espalier
