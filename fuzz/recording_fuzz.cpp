// Recordings of decisions. Held: what was accepted has a network for every lane of every episode, names that
// its lists have, and is written and read back as the same.
#include "espalier/train/control/recording.h"

#include "fuzz/target.h"

using namespace espalier;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::reads([&] {
    const train::Recording recording = train::parse_recording(fuzz::text_of(data, size), "file");
    fuzz::require(std::ssize(recording.networks) == recording.lanes * recording.episodes,
                  "a network for every lane of every episode");
    const auto in = [](int32_t place, const std::vector<std::string>& names) {
      return place >= 0 && place < std::ssize(names);
    };
    for (const train::RecordedNetwork& network : recording.networks) {
      for (const train::RecordedAction& recorded : network.actions) {
        const SeedAction& action = recorded.action;
        fuzz::require(recorded.step >= 1 && recorded.step < recording.episode_length, "a step that decides");
        fuzz::require(in(action.slot, recording.slots), "a slot that is listed");
        fuzz::require(action.op != SeedOp::kGerminate || in(action.blueprint, recording.blueprints),
                      "a blueprint that is listed");
        fuzz::require(action.steps >= 0 && action.target > 0 && action.target <= 1,
                      "numbers that a lifecycle takes");
      }
      for (const train::RecordedSeed& seed : network.seeds)
        fuzz::require(in(seed.slot, recording.slots) && in(seed.blueprint, recording.blueprints) &&
                          seed.amplitude > 0 && seed.amplitude <= 1,
                      "a seed that can stand");
    }
    fuzz::require(train::parse_recording(train::text_of(recording), "again") == recording,
                  "what was written is read as the same");
  });
  return 0;
}
