#include "espalier/grow/description.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/seed_state_json.h"
#include "tests/support/message.h"

namespace espalier::grow {
namespace {

using Json = nlohmann::ordered_json;

NetworkDescription two_seeds() {
  NetworkDescription network{.host = "cifar_wide",
                             .field = "rgb",
                             .channels = 2,
                             .height = 9,
                             .width = 8,
                             .full_scale = 65535,
                             .mean = {0.25, 0.5},
                             .deviation = {0.125, 1},
                             .classes = {"a \"quoted\" one", "käse"}};
  network.seeds.push_back({"r0c0",
                           "conv_light",
                           {.stage = SeedStage::kFossilized,
                            .blend_operator = BlendOperator::kGate,
                            .blueprint = 0,
                            .amplitude = 0.7f,
                            .target = 0.7f,
                            .age_steps = 12,
                            .num_seeds = 3}});
  network.seeds.push_back({"r1c1",
                           "norm",
                           {.stage = SeedStage::kTraining,
                            .blueprint = 0,
                            .target = 0.5f,
                            .ramp_steps = 3,
                            .age_steps = 2,
                            .steps_in_stage = 1,
                            .num_seeds = 1}});
  network.origin = {.run = "runs/x",
                    .data = "synthetic:shapes10",
                    .lane = 3,
                    .epoch = 12,
                    .validation_accuracy = 0.5,
                    .version = "1.0",
                    .commit = "abc"};
  return network;
}

NetworkDescription damaged(const std::function<void(Json&)>& change) {
  Json json = to_json(two_seeds());
  change(json);
  return network_description({{"kind", "espalier.network"}, {"network", json.dump()}}, "net");
}

TEST(NetworkDescription, ComesBackFromItsMetadataAsItWas) {
  const NetworkDescription network = two_seeds();
  const NetworkDescription read = network_description(metadata_of(network), "net");
  EXPECT_EQ(to_json(read), to_json(network));
  EXPECT_EQ(read.classes, network.classes);
  EXPECT_EQ(read.seeds[0].state.amplitude, 0.7f);
  EXPECT_EQ(read.seeds[0].state.num_seeds, 3);
  EXPECT_EQ(read.seeds[1].state.stage, SeedStage::kTraining);
  EXPECT_EQ(read.origin.validation_accuracy, 0.5);
  EXPECT_EQ(read.origin.test_accuracy, std::nullopt);
  EXPECT_EQ(read.image_text(), "2 x 9 x 8");
}

TEST(NetworkDescription, KnowsWhichSeedsAreFelt) {
  const NetworkDescription network = two_seeds();
  EXPECT_TRUE(is_felt(network.seeds[0]));
  EXPECT_FALSE(is_felt(network.seeds[1]));
  SeedDescription silent = network.seeds[0];
  silent.state.amplitude = 0;
  EXPECT_FALSE(is_felt(silent));
}

TEST(NetworkDescription, RefusesAFileOfAnotherKind) {
  EXPECT_ERROR(network_description({}, "net"), Error, "'net'", "no network that `espalier export` wrote");
  EXPECT_ERROR(network_description({{"kind", "espalier.policy"}, {"network", "{}"}}, "net"), Error,
               "no network");
  EXPECT_ERROR(network_description({{"kind", "espalier.network"}, {"network", "{"}}, "net"), Error, "'net'");
}

TEST(NetworkDescription, RefusesEveryDamageInOneSentence) {
  EXPECT_ERROR(damaged([](Json& json) { json["channels"] = 0; }), Error, "'net'", "'channels'", "got 0");
  EXPECT_ERROR(damaged([](Json& json) { json["height"] = "nine"; }), Error, "'height'", "whole number");
  EXPECT_ERROR(damaged([](Json& json) { json["width"] = 1e9; }), Error, "'width'");
  EXPECT_ERROR(damaged([](Json& json) { json["full_scale"] = 100; }), Error, "'full_scale'", "255 or 65535");
  EXPECT_ERROR(damaged([](Json& json) { json["mean"] = {0.5}; }), Error, "'mean'", "want 2 numbers");
  EXPECT_ERROR(damaged([](Json& json) { json["deviation"] = {1, 0}; }), Error, "'deviation'", "above 0");
  EXPECT_ERROR(damaged([](Json& json) { json.erase("classes"); }), Error, "'classes'");
  EXPECT_ERROR(damaged([](Json& json) { json["classes"] = Json::array(); }), Error, "'classes'",
               "at least one");
  EXPECT_ERROR(damaged([](Json& json) { json["seeds"][0].erase("stage"); }), Error, "\"r0c0\"", "damaged");
  EXPECT_ERROR(damaged([](Json& json) { json["seeds"][0]["stage"] = "SLEEPING"; }), Error, "\"r0c0\"",
               "damaged");
  EXPECT_ERROR(damaged([](Json& json) { json["seeds"][0]["amplitude"] = 2; }), Error, "\"r0c0\"",
               "outside 0 to 1");
  EXPECT_ERROR(damaged([](Json& json) { json["seeds"][1]["slot"] = "r0c0"; }), Error, "\"r0c0\"", "twice");
  EXPECT_ERROR(damaged([](Json& json) { json["origin"]["lane"] = "three"; }), Error, "'lane'");
}

// Names are whatever the file says: none may break a message into lines, or fill a terminal.
TEST(NetworkDescription, ShowsStrangeNamesOnOneShortLine) {
  for (const std::string& name : {std::string("a\nb\x1b[2J"), std::string(5000, 'x'), std::string("\x7f")}) {
    const std::function<void(Json&)> changes[] = {
        [&](Json& json) {
          json["seeds"][0]["slot"] = name;
          json["seeds"][0]["stage"] = "SLEEPING";
        },
        [&](Json& json) {
          json["seeds"][0]["slot"] = name;
          json["seeds"][0]["amplitude"] = 2;
        },
        [&](Json& json) { json["seeds"][0]["slot"] = json["seeds"][1]["slot"] = name; },
        [&](Json& json) {
          json["seeds"][0] = Json(SlotState());
          json["seeds"][0]["slot"] = json["seeds"][0]["blueprint"] = name;
        },
    };
    for (const auto& change : changes) {
      std::string message = "not refused\n";
      try {
        damaged(change);
      } catch (const Error& error) {
        message = error.what();
      }
      EXPECT_LT(message.size(), 500u) << message;
      for (const char c : message) EXPECT_TRUE(c >= 0x20 && c != 0x7f) << message;
    }
  }
}

}  // namespace
}  // namespace espalier::grow
