// Writes the event files that tensorboard_test.py reads with TensorBoard's own reader.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "espalier/watch/tensorboard/scalars.h"

namespace espalier::watch {
namespace {

constexpr int64_t kEpisodeLength = 4;
constexpr int64_t kLanes = 20;

// Numbers that tell which start wrote them.
void add_step(MetricEvents& events, int64_t round, int64_t step, double start) {
  for (int64_t lane = 0; lane < kLanes; ++lane)
    events.add({{"kind", "lane"},
                {"round", round},
                {"step", step},
                {"lane", lane},
                {"validation_accuracy", start},
                {"gradient_norm", static_cast<double>(lane + 1) * start}});
  if (step == kEpisodeLength)
    events.add({{"kind", "round"}, {"round", round}, {"losses/policy_loss", start}});
}

TEST(EventsForTensorboard, AreWritten) {
  const char* const out = std::getenv("ESPALIER_EVENTS_OUT");
  if (out == nullptr)
    GTEST_SKIP() << "ESPALIER_EVENTS_OUT is not set: tests/watch/tensorboard_test.py sets it";
  {
    EventFile file(out);
    std::vector<uint8_t> pixels;
    for (int64_t channels = 1; channels <= 4; ++channels) {
      pixels.clear();
      for (int64_t i = 0; i < 7 * 5 * channels; ++i) pixels.push_back(static_cast<uint8_t>(i * 31));
      file.image(fmt::format("images/{}", channels), 0,
                 {.width = 7, .height = 5, .channels = channels, .bytes = pixels});
    }
    pixels.assign(300 * 200 * 3, 0);  // more than one deflate block could store
    for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i >> 7);
    file.image("images/large", 0, {.width = 300, .height = 200, .channels = 3, .bytes = pixels});
    file.scalar("\xe6\xb8\xa9 \xf0\x9f\x8c\xb3/\"quoted\"\n", 0, 0.25);
    MetricEvents events(file, kEpisodeLength);
    for (int64_t round = 1; round <= 3; ++round)
      for (int64_t step = 1; step <= kEpisodeLength; ++step) add_step(events, round, step, 1);
  }
  // It was at round 3, and goes on in the middle of round 2.
  EventFile file(out);
  MetricEvents events(file, kEpisodeLength);
  events.resume_after({{"kind", "lane"}, {"round", 2}, {"step", 2}, {"lane", kLanes - 1}});
  for (int64_t step = 3; step <= kEpisodeLength; ++step) add_step(events, 2, step, 2);
  events.add({{"kind", "result"}, {"last_return", 0.5}});
}

}  // namespace
}  // namespace espalier::watch
