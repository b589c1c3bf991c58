#include "espalier/train/control/recording.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "tests/support/message.h"
#include "tests/support/temporary_folder.h"

namespace espalier::train {
namespace {

using nlohmann::ordered_json;

Recording some_recording() {
  Recording recording{.controller = "ppo:policy.safetensors",
                      .host = "tiny",
                      .slots = {"r0c0", "r1c0"},
                      .blueprints = {"noop", "norm", "conv_light"},
                      .lanes = 2,
                      .episodes = 2,
                      .episode_length = 9,
                      .batches_per_step = 7,
                      .seed = 0xfedcba9876543210};
  recording.networks.resize(4);
  recording.networks[1].actions = {{1,
                                    {.op = SeedOp::kGerminate,
                                     .slot = 1,
                                     .blueprint = 2,
                                     .blend_operator = BlendOperator::kGate,
                                     .curve = BlendCurve::kSigmoid12,
                                     .steps = 5,
                                     .target = 0.7f}},
                                   {4, {.op = SeedOp::kAdvance, .slot = 1}},
                                   {7,
                                    {.op = SeedOp::kSetAmplitudeTarget,
                                     .slot = 1,
                                     .blend_operator = BlendOperator::kMultiply,
                                     .curve = BlendCurve::kCosine,
                                     .steps = 0,
                                     .target = 0.5f}},
                                   {8, {.op = SeedOp::kPrune, .slot = 1, .steps = 3}}};
  recording.networks[1].seeds = {
      {.slot = 1, .blueprint = 2, .blend_operator = BlendOperator::kGate, .amplitude = 0.1f}};
  recording.networks[3].actions = {{2, {.op = SeedOp::kFossilize, .slot = 0}}};
  return recording;
}

// The text with one line changed; line: from 0.
std::string with_line(size_t line, const std::function<void(ordered_json&)>& change) {
  std::string text = text_of(some_recording()), changed;
  for (size_t number = 0, begin = 0; begin < text.size(); ++number) {
    const size_t end = text.find('\n', begin);
    ordered_json json = ordered_json::parse(text.substr(begin, end - begin));
    if (number == line) change(json);
    changed += json.dump() + "\n";
    begin = end + 1;
  }
  return changed;
}

TEST(Recording, ComesBackFromItsText) {
  EXPECT_EQ(parse_recording(text_of(some_recording()), "file"), some_recording());
}

TEST(Recording, IsNamedWithTheLineWhereItIsDamaged) {
  const auto expect_refused = [](const std::string& text, const std::string& line, const std::string& part) {
    EXPECT_ERROR(parse_recording(text, "file"), Error, "'file'", line, part);
  };
  expect_refused("", "", "is empty");
  expect_refused("{}\n", "line 1", "is no recording");
  expect_refused("[1\n", "line 1", "is no recording");
  const std::string whole = text_of(some_recording());
  expect_refused(whole.substr(0, whole.rfind('\n', whole.size() - 2) + 1), "", "its end is missing");
  expect_refused(whole.substr(0, whole.size() - 5), "line 5", "no JSON object");
  expect_refused(whole + whole.substr(whole.rfind('\n', whole.size() - 2) + 1), "line 6", "got more");
  expect_refused(with_line(0, [](auto& json) { json["version"] = 2; }), "line 1", "version 2");
  expect_refused(with_line(0, [](auto& json) { json["lanes"] = 0; }), "line 1", "'lanes'");
  expect_refused(with_line(0, [](auto& json) { json["lanes"] = 4; }), "", "");
  expect_refused(with_line(0, [](auto& json) { json["seed"] = -1; }), "line 1", "'seed'");
  expect_refused(with_line(0, [](auto& json) { json["slots"] = {"a", "a"}; }), "line 1", "twice");
  expect_refused(with_line(0, [](auto& json) { json["blueprints"] = ordered_json::array(); }), "line 1",
                 "'blueprints'");
  expect_refused(with_line(3, [](auto& json) { json["lane"] = 1; }), "line 4", "out of order");
  const auto first_action = [](const char* key, const ordered_json& value) {
    return with_line(2, [&](ordered_json& json) { json["actions"][0][key] = value; });
  };
  expect_refused(first_action("op", "WAIT"), "line 3", "WAIT");
  expect_refused(first_action("op", "EXPLODE"), "line 3", "'op'");
  expect_refused(first_action("slot", "r9c9"), "line 3", "\"r9c9\"");
  expect_refused(first_action("blueprint", "vgg"), "line 3", "\"vgg\"");
  expect_refused(first_action("target", 0), "line 3", "'target'");
  expect_refused(first_action("target", 1.5), "line 3", "'target'");
  expect_refused(first_action("ramp_steps", -1), "line 3", "'ramp_steps'");
  expect_refused(first_action("curve", "zigzag"), "line 3", "'curve'");
  expect_refused(first_action("step", 0), "line 3", "'step'");
  expect_refused(first_action("step", 9), "line 3", "'step'");  // after the last nothing is decided
  expect_refused(first_action("step", 4), "line 3", "steps that rise");
  expect_refused(with_line(2, [](auto& json) { json["seeds"].push_back(json["seeds"][0]); }), "line 3",
                 "twice");
  expect_refused(with_line(2, [](auto& json) { json["seeds"][0]["amplitude"] = 0; }), "line 3",
                 "'amplitude'");
  expect_refused(with_line(2, [](auto& json) { json["seeds"] = 7; }), "line 3", "'seeds'");
}

TEST(Recording, ThatIsNotThereIsNamed) {
  EXPECT_ERROR(read_recording("nowhere.jsonl"), UsageError, "nowhere.jsonl", "cannot be read");
  const support::TemporaryFolder folder;
  EXPECT_ERROR(read_recording(folder.string()), UsageError, folder.string(), "cannot be read");
  folder.write("empty.jsonl", std::string());
  EXPECT_ERROR(read_recording(folder / "empty.jsonl"), Error, "empty");
}

}  // namespace
}  // namespace espalier::train
