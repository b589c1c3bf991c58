// What an epoch did to a network, and how metrics.jsonl spells it: shared by the code that trains
// and the code that reads a run.
//
// Kept true: the numbers of Verdict travel in tensors and never change; names are part of the files of a run.
#pragma once

#include <cstdint>
#include <string_view>

namespace espalier {

// Whether it still learns.
enum class Verdict : uint8_t {
  kSound = 0,
  kNotFinite = 1,  // its loss or gradients
  kLossJumped = 2,
  kGuessing = 3,  // its accuracy is back where a network that learned nothing has it
  // By validation alone it collapsed: it is trained on, but this is no state to go back to.
  kDoubtful = 4,
};
inline constexpr int kNumVerdicts = 5;

// What followed from it.
enum class LaneOutcome : uint8_t {
  kTrained = 0,
  // The epoch did not count: back to the last good state, without the seeds whose amplitude moved since;
  // where none did, at half the learning rate.
  kRolledBack = 1,
  kRetired = 2,  // not trained any more: its last good state is kept
};

const char* name_of(Verdict verdict);      // "sound", "not_finite", "loss_jumped", "guessing", "doubtful"
const char* name_of(LaneOutcome outcome);  // "trained", "rolled_back", "retired"

constexpr bool is_collapse(Verdict verdict) {
  return verdict != Verdict::kSound && verdict != Verdict::kDoubtful;
}
// Whether a text, from a file perhaps, names a verdict that is one.
bool is_collapse(std::string_view name);

}  // namespace espalier
