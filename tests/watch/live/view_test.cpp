#include "espalier/watch/live/view.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "espalier/core/seed_stage.h"

namespace espalier::watch {
namespace {

using nlohmann::ordered_json;

struct Fixture {
  double now = 0;
  LiveViewOptions options(RunExtent extent, ScreenStyle style = {.glyphs = Glyphs::kUtf8}) {
    return {.job = "population",
            .run = "population-20260101-000000-abcdef",
            .extent = extent,
            .style = style,
            .seconds = [this] { return now; }};
  }
};

ordered_json lane_line(int64_t epoch, int64_t lane, double accuracy) {
  return {{"kind", "lane"},       {"epoch", epoch},          {"lane", lane},
          {"outcome", "trained"}, {"validation_loss", 1.25}, {"validation_accuracy", accuracy}};
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

bool holds(const std::vector<std::string>& lines, std::string_view part) {
  return joined(lines).find(part) != std::string::npos;
}

TEST(LiveView, ShowsEveryLaneWithItsCurveAccuracyLossAndSeeds) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  for (int64_t epoch = 1; epoch <= 3; ++epoch) {
    view.add(lane_line(epoch, 0, 0.2 * static_cast<double>(epoch)));
    ordered_json grown = lane_line(epoch, 1, 0.1);
    grown["slots"] = {{{"slot", "r0c1"}, {"stage", "BLENDING"}, {"amplitude", 0.375}},
                      {{"slot", "r1c0"}, {"stage", "EMBARGOED"}}};
    view.add(grown);
  }
  const auto lines = view.frame(100, 24);
  EXPECT_TRUE(holds(lines, "espalier train population  population-20260101-000000-abcdef  running"));
  EXPECT_TRUE(holds(lines, "epoch 3/4"));
  EXPECT_TRUE(holds(lines, "   0 ▂▅█"));
  EXPECT_TRUE(holds(lines, "60.0 %    1.250\n"));
  EXPECT_TRUE(holds(lines, "   1 ▁▁▁"));
  EXPECT_TRUE(holds(lines, "10.0 %    1.250  r0c1 BLENDING 0.38  r1c0 EMBARGOED\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "best 60.0 % (lane 0)  worst 10.0 % (lane 1)  1 seed\n")) << joined(lines);
}

TEST(LiveView, FitsEverySizeWithoutAnEscapeSequence) {
  Fixture fixture;
  for (const Glyphs glyphs : {Glyphs::kUtf8, Glyphs::kAscii}) {
    LiveView view(fixture.options({.total = 12, .samples_a_step = 1000}, {.glyphs = glyphs}));
    for (int64_t lane = 0; lane < 30; ++lane) view.add(lane_line(1, lane, 0.5));
    view.report("\u4e2d\u6587 reading\r\033[2J", 3, 10);
    for (int i = 0; i < 5; ++i)
      view.say("a message that is rather long, longer than a narrow terminal is wide\n");
    for (int columns = 1; columns <= 130; columns += columns < 45 ? 1 : 17)
      for (int rows = 1; rows <= 40; rows += rows < 18 ? 1 : 7) {
        const auto lines = view.frame(columns, rows);
        ASSERT_LE(std::ssize(lines), rows);
        for (const std::string& line : lines) {
          ASSERT_LE(screen_columns(line, Glyphs::kUtf8), columns) << columns << "x" << rows << ": " << line;
          ASSERT_EQ(line.find_first_of("\033\r\n"), line.npos) << line;
          ASSERT_TRUE(glyphs == Glyphs::kUtf8 || std::ranges::all_of(line, [](char c) { return c >= ' '; }))
              << line;
        }
      }
  }
  LiveView view(fixture.options({.total = 12}));
  EXPECT_TRUE(view.frame(0, 5).empty());
  EXPECT_TRUE(view.frame(5, 0).empty());
}

TEST(LiveView, KeepsTheMostImportantOnATinyTerminal) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 12}));
  for (int64_t lane = 0; lane < 3; ++lane) view.add(lane_line(2, lane, 0.5));
  const auto lines = view.frame(20, 5);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0], "population  running");
  EXPECT_EQ(lines[1], "epoch 2/12  0.0 s l\u2026");
  EXPECT_EQ(lines[2], "   0   50.0 %    1.\u2026");
  EXPECT_EQ(lines[4].substr(0, 5), "   2 ");
}

ordered_json grown_line(int64_t lane) {
  ordered_json line = lane_line(1, lane, 0.5);
  line["train_accuracy"] = 0.625;
  line["parameters"] = 12345;
  line["gradient_norm"] = 2.5;
  line["slots"] = {{{"slot", "r0c1"}, {"stage", "TRAINING"}, {"blueprint", "conv_light"}, {"amplitude", 0}},
                   {{"slot", "r1c1"}, {"stage", "HOLDING"}, {"blueprint", "depthwise"}, {"amplitude", 1}}};
  return line;
}

TEST(LiveView, NamesBlueprintsAndShortensThemWhereTheyDoNotFit) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  view.add(grown_line(0));
  // The curve gives way first, down to 12 cells.
  for (const int columns : {94, 100, 130})
    EXPECT_TRUE(
        holds(view.frame(columns, 24), "r0c1 conv_light TRAINING 0.00  r1c1 depthwise HOLDING 1.00\n"))
        << joined(view.frame(columns, 24));
  for (const int columns : {78, 80, 93})
    EXPECT_TRUE(holds(view.frame(columns, 24), "r0c1 conv_l TRAI 0.00  r1c1 dept HOLD 1.00\n"))
        << joined(view.frame(columns, 24));
  EXPECT_TRUE(holds(view.frame(70, 24), "accuracy         now     loss  seeds\n"))
      << joined(view.frame(70, 24));
  EXPECT_TRUE(holds(view.frame(70, 24), "r0c1 conv_l TRAI 0.00  r1c1 dept \u2026\n"))
      << joined(view.frame(70, 24));
}

TEST(LiveView, HasMoreColumnsOnAWideScreen) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  view.add(grown_line(0));
  EXPECT_TRUE(holds(view.frame(100, 24), "now     loss  seeds")) << joined(view.frame(100, 24));
  EXPECT_TRUE(holds(view.frame(110, 24), "now     loss    train  seeds")) << joined(view.frame(110, 24));
  EXPECT_TRUE(holds(view.frame(160, 24), "now     loss    train   params  gradient  seeds"))
      << joined(view.frame(160, 24));
  EXPECT_TRUE(holds(view.frame(160, 24), "50.0 %    1.250   62.5 %    12345     2.500  r0c1"))
      << joined(view.frame(160, 24));
}

TEST(LiveView, ShowsThePolicysEntropyAndWhatItChose) {
  Fixture fixture;
  LiveView view(fixture.options({.shape = RunShape::kRounds, .total = 2, .steps_a_round = 4}));
  for (int64_t lane = 0; lane < 4; ++lane) {
    ordered_json line = lane_line(0, lane, 0.5);
    line.erase("epoch");
    line["round"] = 1;
    line["step"] = 1;
    if (lane == 0) line["action"] = "GERMINATE r0c1 norm";
    if (lane == 3) line["outcome"] = "retired";
    view.add(line);
  }
  EXPECT_TRUE(holds(view.frame(100, 24), "\nchosen: wait 67 % germinate 33 %\n"))
      << joined(view.frame(100, 24));
  view.add({{"kind", "round"}, {"round", 1}, {"losses/entropy", 0.75}, {"losses/approx_kl", 0.0125}});
  EXPECT_TRUE(holds(view.frame(100, 24),
                    "entropy 75.0 % of its maximum  KL 0.0125  chosen: wait 67 % germinate 33 %"))
      << joined(view.frame(100, 24));
  ordered_json next = lane_line(0, 0, 0.5);
  next.erase("epoch");
  next["round"] = 2;
  next["step"] = 1;
  view.add(next);
  EXPECT_FALSE(holds(view.frame(100, 24), "germinate")) << "the counts are a round's own";
}

TEST(LiveView, SaysSomethingBeforeTheFirstEpochEnds) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  EXPECT_TRUE(holds(view.frame(80, 24), "getting ready"));
  view.report("epoch 1/4", 1, 41);
  fixture.now += 10;
  view.report("epoch 1/4", 11, 41);
  const auto lines = view.frame(80, 24);
  EXPECT_TRUE(holds(lines, "epoch 1/4 is under way: 27 %, 10 s so far, 30 s left\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "results come when the first epoch ends\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "]   7 %")) << "a quarter of a quarter is done: " << joined(lines);
  view.add(lane_line(1, 0, 0.5));
  EXPECT_FALSE(holds(view.frame(80, 24), "under way"));
}

TEST(LiveView, ScrollsThroughMoreLanesThanFit) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 12}));
  for (int64_t lane = 0; lane < 128; ++lane) view.add(lane_line(1, lane, 0.5));
  const auto shows = [&](const char* part) { return holds(view.frame(80, 24), part); };
  EXPECT_TRUE(shows("\n   0 "));
  EXPECT_TRUE(shows("rows 1 to 15 of 128, and 113 more\n")) << joined(view.frame(80, 24));
  view.scroll(2);
  EXPECT_TRUE(shows("rows 3 to 17 of 128"));
  EXPECT_FALSE(shows("\n   1 "));
  view.scroll_page(1);
  EXPECT_TRUE(shows("rows 18 to 32 of 128"));
  view.scroll(1'000'000);
  EXPECT_TRUE(shows("rows 114 to 128 of 128"));
  EXPECT_TRUE(shows("\n 127 "));
  view.scroll_page(-1);
  EXPECT_TRUE(shows("rows 99 to 113 of 128"));
  view.scroll(-1'000'000);
  EXPECT_TRUE(shows("rows 1 to 15 of 128"));
  EXPECT_EQ(view.frame(80, 200).size(), 200u);
  EXPECT_FALSE(holds(view.frame(80, 200), "more"));
}

TEST(LiveView, ColoursEveryStageOfASeedInItsOwnWay) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 2}, {.glyphs = Glyphs::kUtf8, .is_colored = true}));
  ordered_json line = lane_line(1, 0, 0.5);
  for (int stage = 1; stage < kNumSeedStages; ++stage)
    line["slots"].push_back({{"slot", "s"}, {"stage", name_of(static_cast<SeedStage>(stage))}});
  view.add(line);
  const auto lines = view.frame(300, 24);
  for (const char* part : {"\033[36mGERMINATED\033[0m", "\033[33mTRAINING\033[0m", "\033[35mBLENDING\033[0m",
                           "\033[34mHOLDING\033[0m", "\033[32mFOSSILIZED\033[0m", "\033[31mPRUNED\033[0m",
                           "\033[2mEMBARGOED\033[0m", "\033[2mRESETTING\033[0m"})
    EXPECT_TRUE(holds(lines, part)) << part;
}

TEST(LiveView, SaysWhyALaneWentBackOrWasLost) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  const auto collapsed = [](int64_t epoch, int64_t lane, const char* outcome, const char* why) {
    ordered_json line = lane_line(epoch, lane, 0.5);
    line["outcome"] = outcome;
    if (why != nullptr) line["collapse"] = why;
    return line;
  };
  view.add(collapsed(1, 0, "rolled_back", "loss_jumped"));
  view.add(collapsed(1, 1, "retired", "not_finite"));
  view.add(collapsed(1, 2, "retired", nullptr));
  view.add(lane_line(1, 3, 0.5));
  const auto lines = view.frame(100, 24);
  EXPECT_TRUE(holds(lines, "1.250  rolled back: loss jumped\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "1.250  retired: not finite\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "1.250  retired\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "50.0 %    1.250\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "  2 retired")) << joined(lines);
  // What is past is told no more.
  for (int64_t lane = 0; lane < 4; ++lane) view.add(lane_line(2, lane, 0.5));
  EXPECT_FALSE(holds(view.frame(100, 24), "rolled back")) << joined(view.frame(100, 24));
  EXPECT_FALSE(holds(view.frame(100, 24), "retired")) << joined(view.frame(100, 24));
}

TEST(LiveView, ShowsNoNumberForValuesThatAreNone) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  view.add({{"kind", "lane"},
            {"epoch", 1},
            {"lane", 0},
            {"validation_loss", nullptr},
            {"validation_accuracy", nullptr},
            {"outcome", "retired"},
            {"slots", "none"}});
  view.add({{"kind", "lane"},
            {"epoch", 1},
            {"lane", 1},
            {"validation_loss", 1e300},
            {"validation_accuracy", "high"},
            {"slots", {1, nullptr, {{"slot", 3}}}}});
  view.add({{"kind", "epoch"}, {"epoch", 1}, {"lanes", 2}, {"validation_accuracy", nullptr}});
  for (const ordered_json& odd :
       {ordered_json(), ordered_json::array({1}), ordered_json("text"), ordered_json{{"kind", 5}},
        ordered_json{{"kind", "lane"}}, ordered_json{{"kind", "lane"}, {"epoch", "x"}},
        ordered_json{{"kind", "lane"}, {"epoch", 1}, {"lane", "x"}},
        ordered_json{{"kind", "epoch"}, {"epoch", 1}, {"streams", 5}},
        ordered_json{{"kind", "weather"}, {"epoch", 99}}})
    view.add(odd);
  const auto lines = view.frame(100, 24);
  EXPECT_TRUE(holds(lines, "epoch 1/4"));
  EXPECT_TRUE(holds(lines, "-        -  retired\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "- 1.0e+300\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "validation -  loss -")) << joined(lines);
  EXPECT_FALSE(holds(lines, "nan"));
}

TEST(LiveView, TellsHowFastAndHowLongStill) {
  Fixture fixture;
  LiveViewOptions options = fixture.options({.total = 10, .samples_a_step = 50'000});
  int asked = 0;
  options.device_memory = [&asked] {
    ++asked;
    return MemoryUse{.used_bytes = int64_t{3} << 30, .total_bytes = int64_t{140} << 30};
  };
  LiveView view(options);
  EXPECT_FALSE(holds(view.frame(120, 24), "left"));
  for (int64_t epoch = 1; epoch <= 2; ++epoch) {
    fixture.now += 4;
    view.add(lane_line(epoch, 0, 0.5));
    view.add(lane_line(epoch, 1, 0.5));
  }
  fixture.now += 1;
  const auto lines = view.frame(120, 24);
  EXPECT_TRUE(holds(lines, "  20 %  9.0 s, 31 s left")) << joined(lines);
  EXPECT_TRUE(holds(lines, "4.0 s an epoch  12500 samples/s  device memory 3.0 GiB of 140.0 GiB"))
      << joined(lines);
  for (int i = 0; i < 5; ++i) view.frame(120, 24);
  EXPECT_EQ(asked, 2);
}

TEST(LiveView, CountsTimeLeftFromWhereAResumedRunGoesOn) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 10}));
  fixture.now = 5;
  view.add(lane_line(9, 0, 0.5));
  EXPECT_TRUE(holds(view.frame(120, 24), "  90 %  5.0 s, 5.0 s left")) << joined(view.frame(120, 24));
}

TEST(LiveView, FollowsRoundsStepsRewardsAndReturns) {
  Fixture fixture;
  LiveViewOptions options =
      fixture.options({.shape = RunShape::kRounds, .total = 2, .steps_a_round = 4, .samples_a_step = 100});
  options.job = "ppo";
  LiveView view(options);
  const auto step = [&](int64_t round, int64_t step, double accuracy) {
    fixture.now += 0.25;
    ordered_json line = lane_line(0, 0, accuracy);
    line.erase("epoch");
    line["round"] = round;
    line["step"] = step;
    if (step > 1) line["reward"] = -0.5;
    view.add(line);
  };
  for (int64_t i = 1; i <= 4; ++i) step(1, i, 0.1 * static_cast<double>(i));
  auto lines = view.frame(100, 24);
  EXPECT_TRUE(holds(lines, "round 1/2, step 4/4")) << joined(lines);
  EXPECT_TRUE(holds(lines, "▁▃▆█")) << joined(lines);
  EXPECT_TRUE(holds(lines, "return -  reward -0.500  validation 40.0 %")) << joined(lines);
  EXPECT_TRUE(holds(lines, "4.0 steps/s  400 samples/s")) << joined(lines);
  EXPECT_TRUE(holds(lines, "1.0 s, 1.0 s left")) << joined(lines);
  view.add({{"kind", "round"},
            {"round", 1},
            {"charts/episodic_return", 0.75},
            {"lanes/validation_accuracy", 0.4}});
  step(2, 1, 0.3);
  view.add({{"kind", "round"}, {"round", 2}, {"charts/episodic_return", 1.5}});
  lines = view.frame(100, 24);
  EXPECT_TRUE(holds(lines, "round 2/2, step 1/4")) << joined(lines);
  EXPECT_TRUE(holds(lines, "return 1.500 ▁█  reward -  validation 30.0 %")) << joined(lines);
  EXPECT_TRUE(holds(lines, "   0 ▅ ")) << joined(lines);  // a new episode, a new curve
}

TEST(LiveView, ShowsTheStreamsOfALinet) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  for (int64_t epoch = 1; epoch <= 2; ++epoch)
    view.add({{"kind", "epoch"},
              {"epoch", epoch},
              {"validation_accuracy", 0.7},
              {"validation_loss", 0.5},
              {"streams",
               {{"rgb",
                 {{"validation_accuracy", 0.2 * static_cast<double>(epoch)},
                  {"share", 0.625},
                  {"frozen", epoch == 1}}},
                {"depth", {{"gradient_norm", 1.0}, {"frozen", false}}}}}});
  const auto lines = view.frame(100, 24);
  EXPECT_TRUE(holds(lines, "validation 70.0 % ▅▅  loss 0.500\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, "stream accuracy")) << joined(lines);
  EXPECT_TRUE(holds(lines, "   rgb ▁█")) << joined(lines);
  EXPECT_TRUE(holds(lines, "40.0 %        -   62.5 %  frozen\n")) << joined(lines);
  EXPECT_TRUE(holds(lines, " depth ")) << joined(lines);
}

TEST(LiveView, GivesASingleNetworkARow) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  view.add({{"kind", "epoch"},
            {"epoch", 1},
            {"lanes", 1},
            {"validation_accuracy", 0.7},
            {"validation_loss", 0.5}});
  EXPECT_TRUE(holds(view.frame(100, 24), " all ▅")) << joined(view.frame(100, 24));
}

TEST(LiveView, ShowsWorkMessagesAndHowItEnds) {
  Fixture fixture;
  LiveView view(fixture.options({.total = 4}));
  view.report("epoch 1/4, validation", 3, 200'000);
  view.say("one\ntwo\n");
  view.say("three\nfour\n");
  auto lines = view.frame(80, 24);
  EXPECT_TRUE(holds(lines, "epoch 1/4, validation: 3 of 200.0k"));
  EXPECT_FALSE(holds(lines, "one"));
  EXPECT_TRUE(holds(lines, "\ntwo\nthree\nfour\nq stops"));
  view.stop_asked();
  lines = view.frame(80, 24);
  EXPECT_TRUE(holds(lines, "  stopping\n"));
  EXPECT_TRUE(holds(lines, "Ctrl-C, after a second, stops at once"));
  LiveView other(fixture.options({.total = 4}));
  other.add({{"kind", "result"}, {"test_accuracy", 0.5}});
  EXPECT_TRUE(holds(other.frame(80, 24), "  finished\n"));
}

}  // namespace
}  // namespace espalier::watch
