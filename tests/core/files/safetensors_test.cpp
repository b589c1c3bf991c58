// One test a rule of the format (docs: formats, safetensors rules 1 to 13), in that order.
#include "espalier/core/files/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "espalier/core/error.h"

namespace espalier {
namespace {

// A whole file from its header's text and its data.
std::string file_of(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + data;
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

// The one sentence that the file is refused with.
std::string refusal(const std::string& file) {
  try {
    parse(file);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

std::string refusal_of_header(const std::string& header, const std::string& data = "") {
  return refusal(file_of(header, data));
}

// A header with one tensor "a" of the given inner text.
std::string with_a(const std::string& inner) {
  return R"({"a":{)" + inner + "}}";
}

const std::string kTiny =
    file_of(R"({"__metadata__":{"k":"v"},"b":{"dtype":"U16","shape":[2],"data_offsets":[0,4]},)"
            R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})",
            "ABCDEFG");

TEST(Safetensors, GivesTensorsInTheOrderOfTheirBytes) {
  const auto header = parse(file_of(R"({"late":{"dtype":"U8","shape":[1,3],"data_offsets":[4,7]},)"
                                    R"("early":{"data_offsets":[0,4],"shape":[2],"dtype":"F16"}})",
                                    "ABCDEFG"));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "early");
  EXPECT_EQ(header.tensors[0].type, StoredType::kF16);
  EXPECT_EQ(header.tensors[1].name, "late");
  EXPECT_EQ(header.tensors[1].shape, (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(header.tensors[1].length_bytes, 3);
  EXPECT_EQ(header.tensors[1].offset_bytes, header.tensors[0].offset_bytes + 4);
}

TEST(Safetensors, GivesTheMetadata) {
  EXPECT_EQ(parse(kTiny).metadata, (Metadata{{"k", "v"}}));
}

TEST(Safetensors, KnowsEveryTypeAndItsWidth) {
  const std::vector<std::pair<std::string, int64_t>> types = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
      {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"I64", 8},     {"U64", 8}, {"F64", 8}};
  for (const auto& [name, bytes] : types) {
    const auto size = std::to_string(bytes);
    const auto header =
        parse(file_of(with_a(R"("dtype":")" + name + R"(","shape":[],"data_offsets":[0,)" + size + "]"),
                      std::string(static_cast<size_t>(bytes), 'x')));
    EXPECT_EQ(name_of(header.tensors.at(0).type), name);
    EXPECT_EQ(bytes_of(header.tensors.at(0).type), bytes);
  }
}

// Rule 1.
TEST(Safetensors, RefusesFewerThanEightBytes) {
  EXPECT_EQ(refusal("1234567"), "f: has 7 bytes, too few for a safetensors file, which begins with 8");
  EXPECT_EQ(refusal(""), "f: has 0 bytes, too few for a safetensors file, which begins with 8");
}

// Rule 2.
TEST(Safetensors, RefusesAHeaderAboveTheLimit) {
  std::string file(16, ' ');
  const uint64_t length = 100'000'001;
  std::memcpy(file.data(), &length, 8);
  EXPECT_EQ(refusal(file),
            "f: states a header of 100000001 bytes, and the format allows 100000000: not a safetensors file");
  std::memset(file.data(), 0xFF, 8);  // 8 + N would overflow
  EXPECT_EQ(refusal(file).find("f: states a header of 18446744073709551615 bytes"), 0u);
}

// Rule 3.
TEST(Safetensors, RefusesAHeaderLongerThanTheFile) {
  std::string file = file_of("{}");
  file[0] = 3;
  EXPECT_EQ(refusal(file), "f: states a header of 3 bytes, but only 2 follow: the file is cut short");
}

// Rule 4.
TEST(Safetensors, RefusesAHeaderThatIsNotUtf8) {
  for (const std::string bad : {"\xFF", "\xC0\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\x80"}) {
    EXPECT_EQ(refusal_of_header(R"({"__metadata__":{"k":")" + bad + R"("}})"),
              "f: the header is not UTF-8 at its byte 22");
  }
  EXPECT_EQ(parse(file_of("{\"__metadata__\":{\"k\":\"\xE2\x82\xAC\xF0\x9F\x8C\xB1\"}}")).metadata.at("k"),
            "\xE2\x82\xAC\xF0\x9F\x8C\xB1");
}

// Rule 5.
TEST(Safetensors, RefusesWhatIsNotOneJsonObject) {
  for (const std::string header : {"", "   ", "[]", "1", "\"a\"", "null", "\xEF\xBB\xBF{}"}) {
    EXPECT_EQ(refusal_of_header(header), "f: the header is not a JSON object") << header;
  }
  for (const std::string header : {"{", "{}{}", "{} x", "{\"a\"}", "{,}", "{}//c"}) {
    EXPECT_EQ(refusal_of_header(header).find("f: the header is not valid JSON at its byte"), 0u) << header;
  }
}

TEST(Safetensors, RefusesBytesBehindAZeroByteInTheHeader) {
  EXPECT_EQ(refusal_of_header(std::string("{}\0{", 4)), "f: the header is not valid JSON at its byte 2");
}

TEST(Safetensors, AcceptsWhitespaceAroundTheHeader) {
  EXPECT_EQ(refusal_of_header("{}      "), "accepted");
  EXPECT_EQ(refusal_of_header(" \t\r\n{ } \n"), "accepted");
}

// Rule 6.
TEST(Safetensors, RefusesMetadataThatIsNotText) {
  EXPECT_EQ(refusal_of_header(R"({"__metadata__":{"k":1}})"),
            "f: the metadata has a number for \"k\", want a string");
  EXPECT_EQ(refusal_of_header(R"({"__metadata__":{"k":null}})"),
            "f: the metadata has null for \"k\", want a string");
  EXPECT_EQ(refusal_of_header(R"({"__metadata__":{"k":{}}})"),
            "f: the metadata has an object for \"k\", want a string");
  EXPECT_EQ(refusal_of_header(R"({"__metadata__":{"k":["v"]}})"),
            "f: the metadata has an array for \"k\", want a string");
  EXPECT_EQ(refusal_of_header(R"({"__metadata__":"v"})"),
            "f: the header has a string for \"__metadata__\", want an object");
}

// Rule 7.
TEST(Safetensors, RefusesATensorWithAKeyMissing) {
  EXPECT_EQ(refusal_of_header(with_a(R"("shape":[],"data_offsets":[0,1])"), "x"),
            "f: tensor \"a\" has no dtype");
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","data_offsets":[0,1])"), "x"),
            "f: tensor \"a\" has no shape");
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[])"), "x"),
            "f: tensor \"a\" has no data_offsets");
}

TEST(Safetensors, RefusesATensorWithAnotherKey) {
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[],"data_offsets":[0,1],"strides":[])"), "x"),
            "f: tensor \"a\" has the unknown key \"strides\", want dtype, shape and data_offsets");
}

TEST(Safetensors, RefusesAnUnknownType) {
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"u8","shape":[],"data_offsets":[0,1])"), "x"),
            "f: tensor \"a\" has the unknown dtype \"u8\"");
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":8,"shape":[],"data_offsets":[0,1])"), "x"),
            "f: tensor \"a\" has a number for dtype, want a string");
}

TEST(Safetensors, RefusesOffsetsThatAreNotTwo) {
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[],"data_offsets":[0])"), "x"),
            "f: tensor \"a\" has 1 data_offsets, want two");
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[],"data_offsets":[0,1,1])"), "x"),
            "f: tensor \"a\" has 3 data_offsets, want two");
}

TEST(Safetensors, RefusesOffsetsOutOfOrder) {
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])"), "x"),
            "f: tensor \"a\" begins at 1 and ends before, at 0");
}

TEST(Safetensors, RefusesNumbersThatAreNotWholeAndNonNegative) {
  for (const std::string number : {"-1", "1.5", "9223372036854775808", "18446744073709551616"}) {
    EXPECT_EQ(
        refusal_of_header(with_a(R"("dtype":"U8","shape":[)" + number + R"(],"data_offsets":[0,1])"), "x"),
        "f: tensor \"a\" has " + number + " in shape, want a whole number from 0 to 2^63 - 1");
    EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[1],"data_offsets":[0,)" + number + "]"), "x"),
              "f: tensor \"a\" has " + number + " in data_offsets, want a whole number from 0 to 2^63 - 1");
  }
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":["1"],"data_offsets":[0,1])"), "x"),
            "f: tensor \"a\" has a string in shape, want whole numbers only");
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":1,"data_offsets":[0,1])"), "x"),
            "f: tensor \"a\" has a number for shape, want an array of whole numbers");
  EXPECT_EQ(refusal_of_header(R"({"a":[]})"), "f: the header has an array for \"a\", want an object");
}

TEST(Safetensors, RefusesDeepNestingAtOnce) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":)" + deep)),
            "f: tensor \"a\" has an array in shape, want whole numbers only");
}

// Rule 8.
TEST(Safetensors, RefusesAShapeWhoseProductOverflows) {
  for (const std::string shape :
       {"4611686018427387904,4", "4294967296,4294967296", "9223372036854775807,2,0"}) {
    EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[)" + shape + R"(],"data_offsets":[0,0])")),
              "f: tensor \"a\" has a shape whose size in bytes does not fit into 63 bits");
  }
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"F64","shape":[1152921504606846976],"data_offsets":[0,0])")),
            "f: tensor \"a\" has a shape whose size in bytes does not fit into 63 bits");
}

// Rule 9.
std::string two_tensors(int b0, int e0, int b1, int e1) {
  return fmt::format(
      R"({{"a":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}},"b":{{"dtype":"U8","shape":[{}],"data_offsets":[{},{}]}}}})",
      e0 - b0, b0, e0, e1 - b1, b1, e1);
}

TEST(Safetensors, RefusesAHoleBetweenTensors) {
  EXPECT_EQ(refusal_of_header(two_tensors(0, 2, 3, 4), "ABCD"),
            "f: a hole of 1 bytes lies before tensor \"b\"");
}

TEST(Safetensors, RefusesTensorsThatDoNotBeginAtZero) {
  EXPECT_EQ(refusal_of_header(two_tensors(2, 4, 1, 2), "ABCD"),
            "f: a hole of 1 bytes lies before tensor \"b\"");
}

TEST(Safetensors, RefusesTensorsThatOverlap) {
  EXPECT_EQ(refusal_of_header(two_tensors(0, 3, 2, 4), "ABCD"),
            "f: tensor \"b\" overlaps the one before it by 1 bytes");
  EXPECT_EQ(refusal_of_header(two_tensors(0, 4, 0, 4), "ABCD"),
            "f: tensor \"b\" overlaps the one before it by 4 bytes");
  EXPECT_EQ(refusal_of_header(two_tensors(0, 4, 2, 2), "ABCD"),
            "f: tensor \"b\" overlaps the one before it by 2 bytes");
}

// Rule 10.
TEST(Safetensors, RefusesALengthThatTheShapeDoesNotGive) {
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U16","shape":[2],"data_offsets":[0,3])"), "ABC"),
            "f: tensor \"a\" has 3 bytes, but its shape and dtype need 4");
}

// Rule 11.
TEST(Safetensors, RefusesAFileShorterOrLongerThanItsTensors) {
  const auto header = with_a(R"("dtype":"U8","shape":[3],"data_offsets":[0,3])");
  EXPECT_EQ(refusal_of_header(header, "AB"),
            "f: has 2 bytes of data, but its tensors need 3: the file is cut short");
  EXPECT_EQ(refusal_of_header(header, "ABC"), "accepted");
  EXPECT_EQ(refusal_of_header(header, "ABCD"), "f: has 1 bytes after its last tensor, want none");
  EXPECT_EQ(refusal_of_header("{}", "A"), "f: has 1 bytes after its last tensor, want none");
  EXPECT_EQ(
      refusal_of_header(
          with_a(R"("dtype":"U8","shape":[9223372036854775807],"data_offsets":[0,9223372036854775807])"),
          "A"),
      "f: has 1 bytes of data, but its tensors need 9223372036854775807: the file is cut short");
}

// Rule 12.
TEST(Safetensors, RefusesDuplicateKeys) {
  const std::string a = R"("a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_EQ(refusal_of_header("{" + a + "," + a + "}"), "f: the header names \"a\" twice");
  EXPECT_EQ(refusal_of_header(R"({"__metadata__":{},"__metadata__":{}})"),
            "f: the header names \"__metadata__\" twice");
  EXPECT_EQ(refusal_of_header(R"({"__metadata__":{"k":"1","k":"2"}})"), "f: the metadata names \"k\" twice");
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0])")),
            "f: tensor \"a\" has shape twice");
  EXPECT_EQ(refusal_of_header(with_a(R"("dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0])")),
            "f: tensor \"a\" has dtype twice");
  EXPECT_EQ(
      refusal_of_header(with_a(R"("dtype":"U8","shape":[0],"data_offsets":[0,0],"data_offsets":[0,0])")),
      "f: tensor \"a\" has data_offsets twice");
}

// Rule 13.
TEST(Safetensors, AcceptsEmptyAndZeroRankTensorsAndNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::string data(4, '\0');
  std::memcpy(data.data(), &nan, 4);
  const auto header = parse(file_of(R"({"e":{"dtype":"F64","shape":[3,0],"data_offsets":[0,0]},)"
                                    R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
                                    R"("t":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
                                    data));
  ASSERT_EQ(header.tensors.size(), 3u);
  EXPECT_EQ(header.tensors[0].length_bytes, 0);
  EXPECT_TRUE(header.tensors[1].shape.empty());
  EXPECT_EQ(header.tensors[1].length_bytes, 4);
  EXPECT_EQ(refusal_of_header("{}"), "accepted");
}

TEST(Safetensors, RefusesEveryTruncation) {
  ASSERT_EQ(refusal(kTiny), "accepted");
  for (size_t length = 0; length < kTiny.size(); ++length) {
    EXPECT_NE(refusal(kTiny.substr(0, length)), "accepted") << length << " bytes";
  }
}

TEST(Safetensors, SurvivesRandomByteFlips) {
  constexpr uint64_t kSeed = 20240607;
  std::mt19937_64 random(kSeed);
  int num_refused = 0, num_accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string file = kTiny;
    for (uint64_t flips = 1 + random() % 3; flips > 0; --flips) {
      file[random() % file.size()] = static_cast<char>(random());
    }
    const auto message = refusal(file);  // any other exception, or a crash, fails the test
    if (message == "accepted") {
      // Both tensors are still there, whatever they are called now, one behind the other up to the end.
      ++num_accepted;
      const SafetensorsHeader header = parse(file);
      ASSERT_LE(header.tensors.size(), 2u) << "seed " << kSeed;
      auto end = static_cast<int64_t>(file.size());
      for (size_t t = header.tensors.size(); t-- > 0;) {
        const TensorEntry& tensor = header.tensors[t];
        EXPECT_EQ(tensor.offset_bytes + tensor.length_bytes, end) << "seed " << kSeed;
        EXPECT_EQ(tensor.length_bytes, tensor.size_bytes()) << "seed " << kSeed;
        end = tensor.offset_bytes;
      }
      EXPECT_GE(end, 8) << "seed " << kSeed;
      continue;
    }
    ++num_refused;
    EXPECT_TRUE(message.starts_with("f: ")) << "seed " << kSeed << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << "seed " << kSeed << ": " << message;
  }
  EXPECT_GT(num_refused, 10000) << "seed " << kSeed;
  EXPECT_GT(num_accepted, 100) << "seed " << kSeed << ": values and the metadata's text may be anything";
}

TEST(Safetensors, ShowsAHostileNameOnOneShortLine) {
  const auto message =
      refusal_of_header(R"({"\u001b[31m\n)" + std::string(10000, 'x') + R"(":{"dtype":"U8","shape":[]}})");
  EXPECT_EQ(message.find("f: tensor \"\\x1b[31m\\x0axxx"), 0u) << message;
  EXPECT_LT(message.size(), 200u);
}

}  // namespace
}  // namespace espalier
