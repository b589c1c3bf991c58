// The one reading of an epoch: from the sums that it left on the device to what every controller observes,
// which lanes collapsed, and what the decision before it was worth. On the device where controllers act, for
// all lanes at once, whoever decides; the host decodes what the epoch's one copy brings of it.
//
// Kept true: nothing is read on the host, and everything lies where it did, so a reading is captured once for
// each part of an episode; numbers are f64 until they are observed (f32), so reports and logs have all their
// bits; a number that was not measured is NaN. Where an epoch is not validated, the last scores hold, so that
// nothing seems gained or lost; before the first ones 0 is observed, and what they show is no gain.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "espalier/policy/reward/account.h"
#include "espalier/tensor/captured_graphs.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/population/epoch_buffer.h"
#include "espalier/train/population/epoch_record.h"
#include "espalier/train/population/governor.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

// What observations and rewards are told.
struct ReadingConfig {
  double parameter_budget = 1;  // share of the host's parameters that is the whole of it
  policy::RewardConfig reward;
  double gamma = 0.995;  // the reward's potential's
};

struct ReadingOptions {
  int64_t lanes = 1;
  int64_t slots = 1;
  int64_t episode_length = 1;  // T, in epochs
  policy::Losing losing = policy::Losing::kEndsEpisode;
  GovernorConfig governor;
  GuessingLevel guessing;
  at::Device device = at::kCPU;
  Graphs graphs = Graphs::kOn;
};

// One lane's part of an epoch, as it comes to the host.
struct LaneReadings {
  LaneMetrics trained;  // without the norms of its seeds, which are in `slots`
  // The epoch's score, or where it was not validated that of the last one that was and was no collapse; NaN:
  // none was.
  LaneScore validated;
  Verdict verdict = Verdict::kSound;
  struct Slot {
    double gradient_norm;        // NaN: not measured
    double contribution_points;  // NaN: not measured
    bool is_finite;              // the lane's numbers and the norm
  };
  std::vector<Slot> slots;  // [S]
  LaneReward reward;        // for the decision before the epoch
};

class EpochReading {
 public:
  EpochReading(const ReadingConfig& config, const ReadingOptions& options);

  void begin_episode();  // all lanes start over

  // After an epoch was read: a lane went back and is compared anew (Governor::forget()).
  void forget(int64_t lane) { governor_.forget(lane); }

  // Queues the reading of an epoch. epoch: of the episode, from 0. What comes out stays where it is, until
  // the next one.
  EpochReadings read(const EpochSums& sums, int64_t epoch);

  // What the copy takes along of the last reading: [R,L] f64 on the device.
  const at::Tensor& rows() const { return rows_; }
  // One lane's column of them on the host: [R].
  LaneReadings decode(std::span<const double> column) const;

  const std::vector<std::string>& term_names() const { return account_.reward().term_names(); }

  void visit_state(run::StateArchive& archive);

 private:
  void body(const EpochSums& sums, policy::EpisodePart part);
  void read_lanes(const EpochSums& sums);
  void read_slots(const EpochSums& sums, const at::Tensor& not_finite);
  at::Tensor observed(policy::LaneReading which) const;  // [L] f32
  at::Tensor slot_rows(int64_t which) const;             // [S,L]

  ReadingConfig config_;
  ReadingOptions options_;
  policy::RewardAccount account_;
  Governor governor_;
  policy::RawObservation observed_;
  at::Tensor rows_;    // [R,L] f64
  StepGraphs graphs_;  // last: its graphs are gone before what they write to
};

}  // namespace espalier::train
