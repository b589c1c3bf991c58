#include "espalier/cli/bind.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "espalier/cli/help.h"
#include "espalier/core/error.h"
#include "tests/support/message.h"

namespace espalier::cli {
namespace {

struct Sample {
  std::string data = "here";
  int64_t batch = 512;
  double rate = 0.5;
  bool augment = true;
  bool force = false;
  std::string mode = "error";

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "data", .help = "where"}, data);
    v({.name = "batch", .help = "samples a step", .low = 1, .high = 1024}, batch);
    v({.name = "rate", .help = "of learning"}, rate);
    v({.name = "augment", .help = "crop and flip"}, augment);
    v({.name = "force", .help = "overwrite"}, force);
    v({.name = "mode", .help = "what then", .choices = {"error", "skip"}}, mode);
  }
};

// A program with one job, `demo run SRC`.
class Bound {
 public:
  Bound() : binding_(add(), list_options(sample), {{"data", "SRC"}}, kOwnFlags) {}
  Bound(const Bound&) = delete;
  Bound& operator=(const Bound&) = delete;

  Sample& parse(std::vector<std::string> words) {
    std::reverse(words.begin(), words.end());  // the order in which CLI11 takes a vector
    app.parse(words);
    refuse_unknown(app);
    binding_.apply();
    return sample;
  }
  // The message of the UsageError that parsing must throw.
  std::string refused(std::vector<std::string> words) {
    try {
      parse(std::move(words));
    } catch (const UsageError& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  Sample sample;
  CLI::App app{"A demonstration.", "espalier"};

 private:
  CLI::App& add() {
    app.formatter(make_help_formatter(80));  // first: commands take over what the program has
    app.require_subcommand(0, 1)->allow_extras();
    CLI::App* const group = app.add_subcommand("demo", "a group")->require_subcommand(0, 1)->allow_extras();
    return *group->add_subcommand("run", "a job")->allow_extras();
  }
  Binding binding_;
};

TEST(Bind, AssignsFlagsOfEveryTypeAndKeepsDefaults) {
  Bound bound;
  const Sample& sample =
      bound.parse({"demo", "run", "--batch", "7", "--rate=-1e-3", "--no-augment", "--force"});
  EXPECT_EQ(sample.batch, 7);
  EXPECT_EQ(sample.rate, -1e-3);
  EXPECT_FALSE(sample.augment);
  EXPECT_TRUE(sample.force);
  EXPECT_EQ(sample.data, "here");
  EXPECT_EQ(sample.mode, "error");
}

TEST(Bind, TakesANegativeNumberAfterASpace) {
  EXPECT_EQ(Bound().parse({"demo", "run", "--rate", "-2.5"}).rate, -2.5);
}

TEST(Bind, TakesAnOptionByItsPlaceOrItsFlag) {
  EXPECT_EQ(Bound().parse({"demo", "run", "there", "--batch", "7"}).data, "there");
  EXPECT_EQ(Bound().parse({"demo", "run", "--data", "there"}).data, "there");
}

TEST(Bind, TakesTheLastOfARepeatedFlag) {
  EXPECT_EQ(Bound().parse({"demo", "run", "--batch", "7", "--batch", "8"}).batch, 8);
  EXPECT_TRUE(Bound().parse({"demo", "run", "--no-force", "--force"}).force);
  EXPECT_FALSE(Bound().parse({"demo", "run", "--force", "--force=false"}).force);
}

TEST(Bind, RefusesAnUnknownFlagWithTheNearestValidOne) {
  EXPECT_EQ(Bound().refused({"demo", "run", "--bacth", "7"}),
            "demo run: unknown flag --bacth; did you mean --batch?");
  EXPECT_EQ(Bound().refused({"demo", "run", "--bacth=7"}),
            "demo run: unknown flag --bacth; did you mean --batch?");
  EXPECT_EQ(Bound().refused({"--hlep"}), "unknown flag --hlep; did you mean --help?");
}

TEST(Bind, RefusesAnUnknownCommandWithTheNearestValidOne) {
  EXPECT_EQ(Bound().refused({"dmeo"}), "unknown command 'dmeo'; did you mean demo?");
  EXPECT_EQ(Bound().refused({"demo", "rnu"}), "demo: unknown command 'rnu'; did you mean run?");
  EXPECT_EQ(Bound().refused({"demo"}), "demo: a command is missing: run; see espalier demo --help");
  EXPECT_EQ(Bound().refused({}), "a command is missing: demo; see espalier --help");
}

TEST(Bind, RefusesAPlaceTooMany) {
  EXPECT_EQ(Bound().refused({"demo", "run", "a", "b"}), "demo run: unexpected argument 'b'");
  EXPECT_EQ(Bound().parse({"demo", "run", "demo"}).data, "demo") << "a word in place is no command";
}

TEST(Bind, RefusesAFlagWhereAValueIsWanted) {
  EXPECT_EQ(Bound().refused({"demo", "run", "--batch", "--force"}),
            "demo run: --batch: want INT, got the flag --force");
}

TEST(Bind, RefusesABadValueNamingFlagValueAndExpected) {
  EXPECT_EQ(Bound().refused({"demo", "run", "--batch", "0"}),
            "--batch: want an integer from 1 to 1024, got 0");
  EXPECT_EQ(Bound().refused({"demo", "run", "--mode", "skp"}),
            "--mode: want one of error, skip, got skp; did you mean skip?");
  EXPECT_EQ(Bound().refused({"demo", "run", "--force=maybe"}), "--force: want true or false, got maybe");
}

// The names that esper-lite's command line has, on options that have other names here.
struct Aliased {
  int64_t lanes = 8;
  std::string precision = "auto";
  std::string residency = "auto";
  double learning_rate = 0.4;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "lanes", .help = "networks", .low = 1, .aliases = {{.name = "envs"}}}, lanes);
    v({.name = "precision",
       .help = "what is computed in",
       .choices = {"auto", "bf16", "fp16"},
       .aliases = {{.name = "amp", .value = "auto"},
                   {.name = "amp-dtype", .values = {{"bfloat16", "bf16"}, {"float16", "fp16"}}}}},
      precision);
    v({.name = "residency",
       .help = "where data stays",
       .choices = {"auto", "device"},
       .aliases = {{.name = "gpu-preload", .value = "device"}}},
      residency);
    v({.name = "learning-rate", .help = "its peak"}, learning_rate);
  }
};

class AliasTest : public ::testing::Test {
 protected:
  // The options after these words; throws what is refused.
  Aliased parse(std::vector<std::string> words) {
    Aliased options;
    CLI::App app{"A demonstration.", "espalier"};
    app.allow_extras();
    const Binding binding(app, list_options(options), {}, kOwnFlags);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    refuse_unknown(app);
    binding.apply();
    return options;
  }
};

TEST_F(AliasTest, MeanTheirOptionInItsOwnWords) {
  EXPECT_EQ(parse({"--envs", "3"}).lanes, 3);
  EXPECT_EQ(parse({"--amp"}).precision, "auto");
  EXPECT_EQ(parse({"--amp-dtype", "bfloat16"}).precision, "bf16");
  EXPECT_EQ(parse({"--amp-dtype", "float16"}).precision, "fp16");
  EXPECT_EQ(parse({"--gpu-preload"}).residency, "device");
}

TEST_F(AliasTest, AreRefusedBesideTheirOption) {
  EXPECT_ERROR(parse({"--amp-dtype", "bfloat16", "--precision", "fp16"}), UsageError,
               "--amp-dtype and --precision say the same in two ways");
  EXPECT_ERROR(parse({"--residency", "auto", "--gpu-preload"}), UsageError, "--gpu-preload and --residency");
}

TEST_F(AliasTest, RefuseWordsThatTheyDoNotHave) {
  EXPECT_ERROR(parse({"--amp-dtype", "bflot16"}), UsageError, "--amp-dtype: want one of bfloat16, float16",
               "got bflot16", "did you mean bfloat16?");
}

TEST_F(AliasTest, SpellingsOfOtherToolsFindTheirFlag) {
  EXPECT_ERROR(parse({"--lr", "1"}), UsageError, "unknown flag --lr; did you mean --learning-rate?");
  EXPECT_ERROR(parse({"--num-envs", "1"}), UsageError, "did you mean --lanes?");
  EXPECT_ERROR(parse({"--optimizer", "sgd"}), UsageError, "SGD", "--learning-rate");
  try {
    parse({"--bs", "1"});
    FAIL() << "was not refused";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "unknown flag --bs") << "this command has no --batch, and nothing is near";
  }
}

TEST(Help, ShowsDefaultRangeAndChoices) {
  Bound bound;
  bound.parse({"demo", "run"});
  const std::string help = bound.app.help();
  for (const char* part :
       {"Usage: espalier demo run SRC [FLAGS]", "SRC, --data SRC", "where (default here)", "--batch INT",
        "samples a step (default 512; from 1 to 1024)", "--[no-]augment", "crop and flip (on by default)",
        "  --force ", "--mode error|skip", "what then (default error)"}) {
    EXPECT_NE(help.find(part), std::string::npos) << part << " is not in\n" << help;
  }
}

TEST(Help, WrapsBetweenWords) {
  EXPECT_EQ(two_columns("--a", "one two", 0), "  --a                         one two\n");
  EXPECT_EQ(
      two_columns("--a", std::string(25, 'x') + " yyyyy", 60),
      "  --a                         " + std::string(25, 'x') + "\n" + std::string(30, ' ') + "yyyyy\n");
  EXPECT_EQ(two_columns(std::string(40, 'n'), "text", 80),
            "  " + std::string(40, 'n') + "\n" + std::string(30, ' ') + "text\n");
  EXPECT_EQ(two_columns("--a", "", 80), "  --a\n");
}

}  // namespace
}  // namespace espalier::cli
