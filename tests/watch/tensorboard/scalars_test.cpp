#include "espalier/watch/tensorboard/scalars.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/run/files/metric_keys.h"
#include "espalier/watch/tensorboard/event_record.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::watch {

void PrintTo(const EventScalar& scalar, std::ostream* out) {
  *out << scalar.tag << " @" << scalar.step << " = " << scalar.value;
}

namespace {

using nlohmann::ordered_json;
using Scalars = std::vector<EventScalar>;

// A line of keys that the jobs write: tests/jobs/metric_keys_test.cpp holds the list to them.
ordered_json line_of(const char* text) {
  auto line = ordered_json::parse(text);
  const auto kind = run::kind_of_line(line);
  for (const auto& item : line.items())
    EXPECT_TRUE(kind && run::find_metric_key(*kind, item.key()) != nullptr)
        << item.key() << ": nobody writes it";
  return line;
}

TEST(EventScalars, OfARoundAreItsKeys) {
  const auto line = line_of(
      R"({"kind":"round","round":3,"charts/SPS":12.5,"losses/policy_loss":null,"losses/entropy":2,"lanes/lost":0,
          "time/train_ms":7})");
  EXPECT_EQ(scalars_of(line, 30), (Scalars{{"charts/SPS", 30, 12.5},
                                           {"losses/entropy", 30, 2},
                                           {"charts/lanes_lost", 30, 0},
                                           {"time/train_ms", 30, 7}}));
}

TEST(EventScalars, OfAPopulationsEpochStandBesideThoseOfItsLanes) {
  const auto line = line_of(
      R"({"kind":"epoch","epoch":2,"lanes":8,"train_loss":1.5,"best_validation_accuracy":0.75,"gradient_norm":2,
          "retired_lanes":1,"seeds":3,"time/captures":4,"time/capture_seconds":0.5,"seconds":6})");
  EXPECT_EQ(scalars_of(line, 2), (Scalars{{"charts/lanes", 2, 8},
                                          {"train_loss/all", 2, 1.5},
                                          {"validation_accuracy/best", 2, 0.75},
                                          {"gradient_norm/all", 2, 2},
                                          {"charts/lanes_lost", 2, 1},
                                          {"growth/seeds", 2, 3},
                                          {"time/captures", 2, 4},
                                          {"time/capture_seconds", 2, 0.5},
                                          {"time/seconds", 2, 6}}));
}

TEST(EventScalars, OfALinetEpochNameTheStreams) {
  const auto line = line_of(
      R"({"kind":"epoch","epoch":2,"validation_accuracy":0.5,"best":true,
          "streams":{"rgb":{"share":0.75,"frozen":false},"t\u00e9l\u00e9/2":{"share":0.25,"train_loss":null},"odd":1},
          "time/captures":4,"seconds":6})");
  EXPECT_EQ(scalars_of(line, 2), (Scalars{{"validation_accuracy/all", 2, 0.5},
                                          {"time/captures", 2, 4},
                                          {"time/seconds", 2, 6},
                                          {"share/stream_rgb", 2, 0.75},
                                          {"share/stream_t\xc3\xa9l\xc3\xa9/2", 2, 0.25}}));
}

TEST(EventScalars, OfLanesAreThoseOfTheFirstSixteen) {
  auto line = line_of(
      R"({"kind":"lane","epoch":2,"lane":15,"outcome":"trained","validation_accuracy":0.5,"reward_end":1,
          "slots":[{"amplitude":1}]})");
  EXPECT_EQ(scalars_of(line, 2),
            (Scalars{{"validation_accuracy/lane_15", 2, 0.5}, {"reward_end/lane_15", 2, 1}}));
  line["lane"] = 16;
  EXPECT_EQ(scalars_of(line, 2), Scalars{});
}

TEST(EventScalars, OfAResultStandApart) {
  const auto line = line_of(
      R"({"kind":"result","test_accuracy":0.5,"streams":{"rgb":{"share":1}},"confusion":[[1,0],[0,1]],"seconds":6})");
  EXPECT_EQ(scalars_of(line, 9), (Scalars{{"result/test_accuracy", 9, 0.5},
                                          {"result/seconds", 9, 6},
                                          {"result/share/stream_rgb", 9, 1}}));
}

TEST(EventScalars, PassOverWhatTheyDoNotKnow) {
  for (const char* text :
       {"7", "null", "[]", "{}", R"({"kind":3,"epoch":1,"x":1})", R"({"kind":"memory_format","step_ms":1})",
        R"({"kind":"lane","epoch":1,"lane":-1,"x":1})", R"({"kind":"lane","epoch":1,"x":1})",
        R"({"kind":"epoch","streams":[1],"x":"1"})",
        R"({"kind":"epoch","epoch":1,"captures":3,"train_loss":"1"})",
        R"({"kind":"round","round":1,"losses/":1})"})
    EXPECT_EQ(scalars_of(ordered_json::parse(text), 1), Scalars{}) << text;
}

TEST(EventScalars, StepsOfAllEpisodesFollowEachOther) {
  const auto step = [](const char* text) { return step_of(ordered_json::parse(text), 10); };
  EXPECT_EQ(step(R"({"epoch":4})"), 4);
  EXPECT_EQ(step(R"({"round":1,"step":1})"), 1);
  EXPECT_EQ(step(R"({"round":3,"step":10})"), 30);
  EXPECT_EQ(step(R"({"round":3})"), 30);
  EXPECT_EQ(step(R"({"kind":"result"})"), std::nullopt);
  EXPECT_EQ(step(R"({"epoch":1.5})"), std::nullopt);
  EXPECT_EQ(step("3"), std::nullopt);
  EXPECT_EQ(step(R"({"round":9223372036854775807,"step":1})"), std::nullopt);
  EXPECT_EQ(step(R"({"round":-9223372036854775808,"step":1})"), std::nullopt);
  EXPECT_EQ(step(R"({"round":1,"step":-9223372036854775808})"), std::numeric_limits<int64_t>::min());
}

// The bytes of a file whose events are looked for in it, times apart.
class MetricEventsTest : public ::testing::Test {
 protected:
  std::string written() const {
    std::ifstream stream(file_.path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // Without the wall time and what follows from it: the first nine bytes of an event.
  size_t position(const std::string& event) const { return written().find(event.substr(9)); }
  size_t histogram_at(int64_t step, const std::vector<double>& norms) const {
    return position(histogram_event({0, step}, "gradient_norm/lanes", Histogram(norms)));
  }
  static ordered_json lane(int64_t round, int64_t step, int64_t lane, double norm) {
    return {{"kind", "lane"}, {"round", round}, {"step", step}, {"lane", lane}, {"gradient_norm", norm}};
  }
  static constexpr size_t kNone = std::string::npos;

  support::TemporaryFolder folder_;
  EventFile file_{folder_.path()};
  MetricEvents events_{file_, 10};
};

TEST_F(MetricEventsTest, AHistogramHasAllLanesOfAStep) {
  for (int64_t i = 0; i < 20; ++i) events_.add(lane(2, 3, i, 1));
  EXPECT_EQ(histogram_at(13, std::vector<double>(20, 1)), kNone);
  events_.add(lane(2, 4, 0, 5));
  EXPECT_NE(histogram_at(13, std::vector<double>(20, 1)), kNone);
  events_.add({{"kind", "memory_format"}, {"round", 7}});
  EXPECT_EQ(histogram_at(14, {5}), kNone);
  events_.add({{"kind", "round"}, {"round", 2}, {"charts/SPS", 1}});
  EXPECT_LT(histogram_at(14, {5}), position(scalar_event({0, 20}, "charts/SPS", 1)));
  EXPECT_NE(position(scalar_event({0, 14}, "gradient_norm/lane_00", 5)), kNone);
}

TEST_F(MetricEventsTest, ALaneWithoutANormIsNotInTheHistogram) {
  events_.add(lane(1, 1, 0, 1));
  auto lost = lane(1, 1, 1, 1);
  lost["gradient_norm"] = nullptr;
  events_.add(lost);
  events_.flush();
  EXPECT_NE(histogram_at(1, {1}), kNone);
}

TEST_F(MetricEventsTest, AResultStandsAtTheLastStep) {
  events_.add({{"kind", "round"}, {"round", 2}});
  events_.add({{"kind", "result"}, {"first_return", 3}});
  EXPECT_NE(position(scalar_event({0, 20}, "result/first_return", 3)), kNone);
}

TEST_F(MetricEventsTest, ARunGoesOnBehindTheLastLineThatWasKept) {
  events_.resume_after(lane(2, 3, 7, 1));
  EXPECT_NE(position(session_start_event({0, 14})), kNone);
  events_.add({{"kind", "result"}, {"first_return", 3}});
  EXPECT_NE(position(scalar_event({0, 13}, "result/first_return", 3)), kNone);
}

TEST_F(MetricEventsTest, ARunWithoutAnyLineGoesOnAtItsFirstStep) {
  events_.resume_after(ordered_json::object());
  EXPECT_NE(position(session_start_event({0, 1})), kNone);
}

TEST_F(MetricEventsTest, RefusesAnEpisodeWithoutSteps) {
  EXPECT_ERROR(MetricEvents(file_, 0), Error, "0 steps");
}

}  // namespace
}  // namespace espalier::watch
