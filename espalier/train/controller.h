// Who decides how lanes grow: after every epoch, what each lane showed goes in and one action a lane comes
// out. A learned policy is another one of these.
//
// Kept true: plain values of the host, no tensor; an action depends on its lane's report and on the options
// alone, so a lane decides alike whatever other lanes there are and however often it is asked; what
// may_choose() forbids is never chosen.
#pragma once

#include <cstdint>
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

// What one lane showed in the epoch that just ended.
struct LaneReport {
  int64_t lane = 0;
  int64_t epoch = 0;       // from 1
  int64_t num_epochs = 0;  // of the whole run
  double train_loss = 0;
  double train_accuracy = 0;  // in [0, 1], as all accuracies here
  double validation_loss = 0;
  double validation_accuracy = 0;
  std::vector<double> accuracies;  // of validation, after every epoch that counted, this one last
  double host_gradient_norm = 0;   // mean over the epoch's batches
  std::vector<SlotReport> slots;   // by action index
};

class Controller {
 public:
  virtual ~Controller() = default;
  // One action for every report, in their order. Lanes that have nothing to decide are not among them.
  virtual std::vector<SeedAction> decide(std::span<const LaneReport> lanes) = 0;
};

struct ControllerOptions {
  uint64_t seed = 0;
  std::vector<int32_t> blueprints;  // what may be germinated, the most promising first
  grow::GateOptions gates;          // as the lifecycle's
};

// "none" always waits. "random" draws from what is allowed, by numbers that depend on (seed, lane, epoch)
// alone. "heuristic" follows heuristic_controller.h. An unknown name is refused with the list.
std::unique_ptr<Controller> make_controller(std::string_view name, const ControllerOptions& options);
std::vector<std::string> controller_names();

}  // namespace espalier::train
