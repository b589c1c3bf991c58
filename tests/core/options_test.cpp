#include "espalier/core/options.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"

namespace espalier {
namespace {

using Json = nlohmann::ordered_json;

struct Inner {
  uint64_t seed = 7;
  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "seed", .help = "of everything"}, seed);
  }
};

struct Sample {
  Inner inner;
  int64_t batch = 512;
  double rate = 0.1;
  bool augment = true;
  std::string mode = "error";
  std::string place;
  int64_t memory = 0;
  template <class Visitor>
  void visit(Visitor&& v) {
    inner.visit(v);
    v({.name = "batch", .help = "samples", .low = 1, .high = 1024}, batch);
    v({.name = "rate", .help = "of learning", .low = 0}, rate);
    v({.name = "augment", .help = "crop and flip"}, augment);
    v({.name = "mode", .help = "what then", .choices = {"error", "skip"}}, mode);
    v({.name = "place", .help = "where"}, place);
    v({.name = "memory", .help = "at most", .low = 0, .format = OptionFormat::kByteSize}, memory);
  }
};

struct Twice {
  int64_t a = 0;
  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "a", .help = ""}, a);
    v({.name = "a", .help = ""}, a);
  }
};

OptionRef option(Sample& sample, std::string_view name) {
  for (const OptionRef& ref : list_options(sample)) {
    if (ref.info.name == name) return ref;
  }
  throw std::logic_error("no such option");
}

// The message of the UsageError that `body` must throw.
template <class Body>
std::string refusal(Body body) {
  try {
    body();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "nothing was refused";
}

std::string refused_json(const char* text) {
  Sample sample;
  return refusal([&] { from_json(sample, Json::parse(text), "run.json"); });
}

std::string refused_text(std::string_view name, std::string_view text) {
  Sample sample;
  return refusal([&] { set_from_text(option(sample, name), text); });
}

class ConfigFile : public ::testing::Test {
 protected:
  ConfigFile() {
    std::string pattern = (std::filesystem::temp_directory_path() / "options_test_XXXXXX").string();
    const int handle = mkstemp(pattern.data());
    if (handle >= 0) close(handle);
    file_ = pattern;
  }
  ~ConfigFile() override { std::filesystem::remove(file_); }
  void write(const std::string& text) const { std::ofstream(file_) << text; }
  std::string refused(const std::string& text) const {
    write(text);
    Sample sample;
    return refusal([&] { read_config_file(list_options(sample), file_); });
  }
  std::string file_;
};

TEST(Options, KeepTheOrderOfDeclarationInJson) {
  EXPECT_EQ(to_json(Sample{}).dump(),
            R"({"seed":7,"batch":512,"rate":0.1,"augment":true,"mode":"error","place":"","memory":0})");
}

TEST(Options, ComeBackFromTheirOwnJson) {
  Sample sample;
  sample.inner.seed = std::numeric_limits<uint64_t>::max();
  sample.batch = 3;
  sample.rate = 1.0 / 3.0;
  sample.augment = false;
  sample.mode = "skip";
  sample.place = "a \"b\"\n\\ \xC3\xA9";
  sample.memory = std::numeric_limits<int64_t>::max();
  Sample back;
  from_json(back, Json::parse(config_text(sample)), "run.json");
  EXPECT_EQ(to_json(back), to_json(sample));
  EXPECT_EQ(back.inner.seed, sample.inner.seed);
  EXPECT_EQ(back.rate, sample.rate);
}

TEST(Options, KeepTheValuesOfKeysThatAreNotThere) {
  Sample sample;
  sample.rate = 0.5;
  from_json(sample, Json::parse(R"({"batch": 2})"), "run.json");
  EXPECT_EQ(sample.batch, 2);
  EXPECT_EQ(sample.rate, 0.5);
}

TEST(Options, RefuseAnUnknownKeyWithTheNearestName) {
  EXPECT_EQ(refused_json(R"({"bacth": 2})"), "run.json: unknown key \"bacth\"; did you mean batch?");
}

TEST(Options, RefuseAWrongTypeNamingKeyValueAndExpected) {
  EXPECT_EQ(refused_json(R"({"batch": "12"})"),
            "run.json: \"batch\": want an integer from 1 to 1024, got \"12\"");
  EXPECT_EQ(refused_json(R"({"batch": 1.5})"),
            "run.json: \"batch\": want an integer from 1 to 1024, got 1.5");
  EXPECT_EQ(refused_json(R"({"batch": null})"),
            "run.json: \"batch\": want an integer from 1 to 1024, got null");
  EXPECT_EQ(refused_json(R"({"augment": 1})"), "run.json: \"augment\": want true or false, got 1");
  EXPECT_EQ(refused_json(R"({"rate": "x"})"), "run.json: \"rate\": want a number of at least 0, got \"x\"");
  EXPECT_EQ(refused_json(R"({"place": ["x"]})"), "run.json: \"place\": want text, got [\"x\"]");
  EXPECT_EQ(refused_json(R"([1])"), "run.json: want one JSON object of options, got [1]");
}

TEST(Options, RefuseAValueOutOfRange) {
  EXPECT_EQ(refused_json(R"({"batch": 0})"), "run.json: \"batch\": want an integer from 1 to 1024, got 0");
  EXPECT_EQ(refused_json(R"({"batch": 1025})"),
            "run.json: \"batch\": want an integer from 1 to 1024, got 1025");
  EXPECT_EQ(refused_json(R"({"memory": 9223372036854775808})"),
            "run.json: \"memory\": want a size such as 20GiB of at least 0 B, got 9223372036854775808");
  EXPECT_EQ(refused_json(R"({"seed": -1})"),
            "run.json: \"seed\": want an integer from 0 to 2^64 - 1, got -1");
  EXPECT_EQ(refused_text("batch", "0"), "--batch: want an integer from 1 to 1024, got 0");
  EXPECT_EQ(refused_text("rate", "-0.5"), "--rate: want a number of at least 0, got -0.5");
}

TEST(Options, RefuseWhatIsNotAChoiceWithTheNearestOne) {
  EXPECT_EQ(refused_json(R"({"mode": "skpi"})"),
            "run.json: \"mode\": want one of error, skip, got skpi; did you mean skip?");
  EXPECT_EQ(refused_text("mode", "errors"),
            "--mode: want one of error, skip, got errors; did you mean error?");
}

TEST(Options, RefuseTextThatIsNotWhollyANumber) {
  for (const char* text : {"", "x", "1x", " 1", "1.0", "99999999999999999999"}) {
    EXPECT_TRUE(refused_text("batch", text).starts_with("--batch: want an integer")) << text;
  }
  for (const char* text : {"", "nan", "inf", "1,5"}) {
    EXPECT_TRUE(refused_text("rate", text).starts_with("--rate: want a number")) << text;
  }
  EXPECT_TRUE(refused_text("augment", "maybe").starts_with("--augment: want true or false"));
}

TEST(Options, TakeTextFromTheCommandLine) {
  Sample sample;
  set_from_text(option(sample, "batch"), "1024");
  set_from_text(option(sample, "rate"), "1e-3");
  set_from_text(option(sample, "augment"), "false");
  set_from_text(option(sample, "place"), "");
  set_from_text(option(sample, "memory"), "20GiB");
  set_from_text(option(sample, "seed"), "18446744073709551615");
  EXPECT_EQ(sample.batch, 1024);
  EXPECT_EQ(sample.rate, 1e-3);
  EXPECT_FALSE(sample.augment);
  EXPECT_EQ(sample.memory, int64_t{20} << 30);
  EXPECT_EQ(sample.inner.seed, std::numeric_limits<uint64_t>::max());
}

TEST(Options, ReadAByteSizeFromJsonAsNumberOrText) {
  Sample sample;
  from_json(sample, Json::parse(R"({"memory": "2MiB"})"), "run.json");
  EXPECT_EQ(sample.memory, 2 << 20);
  from_json(sample, Json::parse(R"({"memory": 5})"), "run.json");
  EXPECT_EQ(sample.memory, 5);
}

TEST(Options, ValidateWhatWasSetInCode) {
  Sample sample;
  EXPECT_NO_THROW(validate(sample));
  sample.batch = 0;
  EXPECT_EQ(refusal([&] { validate(sample); }), "--batch: want an integer from 1 to 1024, got 0");
  sample.batch = 1;
  sample.rate = std::nan("");
  EXPECT_EQ(refusal([&] { validate(sample); }), "--rate: want a number of at least 0, got nan");
  sample.rate = 1;
  sample.mode = "";
  EXPECT_EQ(refusal([&] { validate(sample, "job"); }), "job: \"mode\": want one of error, skip, got nothing");
  sample.mode = "skp";
  EXPECT_EQ(refusal([&] { validate(sample, "job"); }),
            "job: \"mode\": want one of error, skip, got skp; did you mean skip?");
}

TEST(Options, RefuseAListThatDeclaresANameTwice) {
  Twice twice;
  EXPECT_THROW(list_options(twice), Error);
}

TEST_F(ConfigFile, IsReadAndNamedInErrors) {
  Sample saved;
  saved.batch = 9;
  write(config_text(saved));
  Sample sample;
  read_config_file(list_options(sample), file_);
  EXPECT_EQ(sample.batch, 9);
  EXPECT_EQ(refused(R"({"bach": 1})"), file_ + ": unknown key \"bach\"; did you mean batch?");
}

TEST_F(ConfigFile, IsRefusedWithAKeyTwice) {
  EXPECT_EQ(refused(R"({"batch": 1, "batch": 2})"), file_ + ": key \"batch\" stands there twice");
}

TEST_F(ConfigFile, IsRefusedInOneLineWhenItIsNotJson) {
  // Found by fuzzing: a number beyond double's range is another kind of error to the JSON library.
  for (const char* text : {"", "{", "{\"batch\": }", "\xff\xfe", "{} {}", "[[[[[[", "{\"rate\": 1e999}"}) {
    const std::string message = refused(text);
    EXPECT_TRUE(message.starts_with(file_ + ": not JSON: ")) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
}

TEST_F(ConfigFile, IsRefusedWhenMissingHugeOrADirectory) {
  Sample sample;
  const OptionList list = list_options(sample);
  EXPECT_THROW(read_config_file(list, file_ + ".none"), UsageError);
  EXPECT_THROW(read_config_file(list, std::filesystem::temp_directory_path().string()), UsageError);
  EXPECT_NE(refused(std::string(2 << 20, ' ')).find("larger than 1.0 MiB"), std::string::npos);
}

// Found by fuzzing: showing the value took stack in proportion to its depth, until there was none.
TEST_F(ConfigFile, IsRefusedWhenItNestsDeeply) {
  for (const char* before : {"", "{\"batch\": ", "{\"bach\": "}) {
    const std::string message = refused(before + std::string(250'000, '[') + std::string(250'000, ']') + "}");
    EXPECT_EQ(message, file_ + ": nests deeper than 32 levels; want one JSON object of options");
  }
  EXPECT_TRUE(refused(R"({"batch": [[[1]]]})").ends_with("got [[[1]]]"));
}

// Found by fuzzing: a message held the file's text as it was, line breaks and all, however long.
TEST_F(ConfigFile, IsRefusedInOneShortLineWhateverItHolds) {
  const std::string long_text(500'000, 'x');
  const std::vector<std::string> texts = {
      R"({"mode": "a\nb"})",
      R"({"batch": "\u001b[2J"})",
      R"({"mode": ")" + long_text + R"("})",
      R"({")" + long_text + R"(": 1})",
      R"({"mode": ")" + long_text,
  };
  for (const std::string& text : texts) {
    const std::string message = refused(text);
    EXPECT_LT(message.size(), 500u);
    EXPECT_EQ(message.find_first_of("\n\x1b"), message.npos) << message;
  }
}

TEST(Options, AreRefusedInOneShortLineWhateverIsTyped) {
  Sample sample;
  EXPECT_EQ(refusal([&] { set_from_text(option(sample, "batch"), "1\n2"); }),
            "--batch: want an integer from 1 to 1024, got 1?2");
  EXPECT_LT(refusal([&] { set_from_text(option(sample, "mode"), std::string(100'000, 'y')); }).size(), 500u);
}

}  // namespace
}  // namespace espalier
