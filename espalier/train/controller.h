// Who decides how lanes grow: after every epoch, what each lane showed goes in and one action a lane comes
// out. A learned policy is another one of these.
//
// Kept true: an action depends on its lane's report (or its lane's signs) and on the options alone, so a lane
// decides alike whatever other lanes there are and however often it is asked; what may_choose() forbids is
// never chosen.
//
// Rules decide on the host, from reports of plain values. A policy decides on the device, before anything of
// the epoch is read: act() queues that, and what it chose travels in the epoch's one copy.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/core/seed_stage.h"
#include "espalier/grow/gates.h"

namespace espalier::train {

struct SlotReport {
  SlotState state;                  // after the epoch
  grow::SeedMeasurements measured;  // of the seed, where there is one
};

// Whose gradient norms an epoch tells. What gates ask for is always told.
enum class Telemetry { kAll, kForGates };

// Whether a seed's norm is.
bool tells_norm(Telemetry telemetry, SeedStage stage);

// What one lane showed in the epoch that just ended.
struct LaneReport {
  int64_t lane = 0;        // of the whole job
  int64_t epoch = 0;       // from 1
  int64_t num_epochs = 0;  // of the whole run
  double train_loss = 0;
  double train_accuracy = 0;  // in [0, 1], as all accuracies here
  double validation_loss = 0;
  double validation_accuracy = 0;
  std::vector<double> accuracies;  // of validation, after every epoch that counted, this one last
  double host_gradient_norm = 0;   // mean over the epoch's batches
  std::vector<SlotReport> slots;   // by action index
  std::vector<double> carried;     // the lane's column of what act() returned; empty: nothing
};

// What an epoch left on the device, of all lanes of the job, while nothing of it has been read.
struct EpochSigns {
  at::Tensor trained;           // [rows,L] f64: StepMetrics::sums()
  at::Tensor validated;         // [1 + S,3,L] f64: Evaluation::sums()
  at::Tensor states;            // [L,S,sizeof(SlotState)] u8: as in the reports
  at::Tensor added_parameters;  // [L] f32: what grew, as a share of the host's
  int64_t num_batches = 0;      // that `trained` is of
  Telemetry telemetry = Telemetry::kAll;
};

class Controller {
 public:
  virtual ~Controller() = default;

  // All lanes begin anew, for the round-th time, from 0; not called where a job is a single episode.
  virtual void begin_episode(int64_t /*round*/) {}

  // Queues what is decided on the device; reads nothing on the host. Returns what decide() needs of it, [R,L]
  // f64 there; or nothing.
  virtual at::Tensor act(const EpochSigns& /*signs*/) { return {}; }

  // One action for every report, in their order. Lanes that have nothing to decide are not among them.
  virtual std::vector<SeedAction> decide(std::span<const LaneReport> lanes) = 0;
};

// What a controller by rules keeps to, as masks keep a policy to it.
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

// "none" always waits. "random" draws from what is allowed, by numbers that depend on (seed, round, lane,
// epoch) alone. "heuristic" follows heuristic_controller.h. An unknown name is refused with the list.
std::unique_ptr<Controller> make_controller(std::string_view name, const ControllerOptions& options);
std::vector<std::string> controller_names();

}  // namespace espalier::train
