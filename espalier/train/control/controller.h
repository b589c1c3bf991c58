// Who decides how lanes grow: after every epoch, what each lane showed goes in and one action per lane comes
// out. A learned policy is another one of these.
//
// Kept true: an action depends on its lane's report (or its lane's readings) and on the options alone, so a
// lane decides alike whatever other lanes there are and however often it is asked; what may_choose() forbids
// is never chosen.
//
// Rules decide on the host, from reports of plain values. A policy decides on the device, before anything of
// the epoch is read: act() queues that, and what it chose travels in the epoch's one copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/registry.h"
#include "espalier/core/seed_stage.h"
#include "espalier/grow/gates.h"
#include "espalier/policy/reward/account.h"

namespace espalier::train {

struct SlotReport {
  SlotState state;                  // after the epoch
  grow::SeedMeasurements measured;  // about the seed, where there is one
};

// Whose gradient norms an epoch tells: those of all seeds that have trained, or only of the ones that gates
// ask about, in TRAINING and HOLDING.
enum class Telemetry { kAll, kForGates };

// What one lane showed in the epoch that just ended.
struct LaneReport {
  int64_t lane = 0;        // counted over the whole job
  int64_t epoch = 0;       // from 1
  int64_t num_epochs = 0;  // in the whole run
  double train_loss = 0;
  double train_accuracy = 0;   // in [0, 1], as all accuracies here
  bool is_validated = true;    // in this epoch; else what follows is of the last one that was
  double validation_loss = 0;  // NaN: none was yet
  double validation_accuracy = 0;
  std::vector<double> accuracies;  // on validation, after every epoch that was validated and counted
  double host_gradient_norm = 0;   // mean over the epoch's batches
  std::vector<SlotReport> slots;   // by action index
  std::vector<double> carried;     // the lane's column of what act() returned; empty: nothing
};

// What an epoch came to, of all lanes of the job, read on the device (train/population/epoch_reading.h) while
// nothing of it is on the host. Everything lies where it did in the epoch before.
struct EpochReadings {
  const policy::RawObservation& observed;
  const policy::RewardAccount& account;  // what the decision before the epoch was worth; which lanes are lost
  int64_t epoch = 0;                     // in the episode, from 0
  policy::EpisodePart part = policy::EpisodePart::kFirst;
};

class Controller {
 public:
  virtual ~Controller() = default;

  // All lanes start over, for the round-th time, from 0; not called where a job is a single episode.
  virtual void begin_episode(int64_t /*round*/) {}

  // The seeds that lanes begin the round-th episode with, [L][S]; empty: no lane has any. round: 0 where a
  // job is a single episode.
  virtual std::vector<std::vector<SlotState>> first_states(int64_t /*round*/) const { return {}; }

  // Queues what is decided on the device; reads nothing on the host. Returns what decide() needs of it, [R,L]
  // f64 there; or nothing.
  virtual at::Tensor act(const EpochReadings& /*readings*/) { return {}; }

  // One action for every report, in their order. Lanes that have nothing to decide are not among them.
  virtual std::vector<SeedAction> decide(std::span<const LaneReport> lanes) = 0;

  // Actions of the episode so far that it was told to take and that were not possible, [L]; empty: none.
  virtual std::vector<int64_t> num_illegal() const { return {}; }
};

// What a controller by rules keeps to, exactly as masks keep a policy to it (policy/action/masks.h).
struct GrowthLimits {
  std::vector<bool> enabled_slots = {};  // [S]: where seeds may be planted; empty: everywhere
  int64_t max_seeds = std::numeric_limits<int64_t>::max();  // that a lane may hold at once

  bool may_germinate(const LaneReport& lane, size_t slot) const;
};

struct ControllerOptions {
  uint64_t seed = 0;
  std::vector<int32_t> blueprints;  // what may be germinated, the most promising first
  grow::GateOptions gates;          // as the lifecycle's
  GrowthLimits limits;
};

// "none" always waits. "random" draws from the policy's action space what is allowed, by numbers that depend
// on (seed, round, lane, epoch) alone. "heuristic" follows heuristic.h. A program adds its own
// (examples/own_controller.cpp).
struct ControllerKind {
  std::string name;
  std::function<std::unique_ptr<Controller>(const ControllerOptions&)> make;
};
Registry<ControllerKind>& controllers();

}  // namespace espalier::train
