// A population's options: how many lanes of which host, how they are trained, who decides how they grow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/data/plan.h"
#include "espalier/grow/gates.h"
#include "espalier/train/job_config.h"
#include "espalier/train/population/governor_config.h"
#include "espalier/train/step/learning_rate.h"

namespace espalier::train {

struct PopulationConfig : JobConfig {
  std::vector<DeviceName>
      devices;  // where lanes live, in turn; empty: a GPU where there is one, else the CPU
  int64_t lanes = 8;
  std::string host = "cifar_baseline";  // by its name in grow::hosts()
  std::string field;                    // the data's, where it has several
  data::PlanKind plan = data::PlanKind::kOwn;
  data::SplitBy split_by = data::SplitBy::kWorld;  // with plan kSplit
  double learning_rate = 0.4;                      // its peak
  RateCurve schedule = RateCurve::kLinear;
  double warm_up = 0.2;        // share of the run over which the rate rises
  double seed_rate = 1;        // what a seed's rate is, as a multiple of its host's
  int64_t seed_warm_up = 100;  // batches over which a new seed's rate rises; 0: none
  // How a seed's rate goes on after the warm-up, over the batches left when it begins; none: as its host's.
  std::optional<RateCurve> seed_schedule = {};
  double momentum = 0.9;  // for SGD, Nesterov's; 0: none
  double weight_decay = 5e-4;
  double label_smoothing = 0;
  bool sync_norm = false;  // ranks that share batches: batch statistics are of the whole batch, not of a part
  double clip = 1;         // largest gradient norm of a lane's host, and of each of its seeds; 0: any
  GovernorConfig governor;
  // Between two decisions; 0: a pass over the data. Else `epochs` counts steps of so many batches.
  int64_t batches_per_step = 0;
  // Steps from one that is validated to the next; the last of an episode always is.
  int64_t validate_every = 1;
  // Parts of the validation split that are scored in turn, one in a validation; the last of an episode scores
  // all of it.
  int64_t validation_parts = 1;
  int64_t validation_batch = 0;     // samples that are scored at a time; 0: see validation_batch()
  std::string controller = "none";  // by its name in controllers()
  grow::GateOptions gates;
  int64_t embargo = 5;  // epochs that a slot rests after a removal
  // The gradient norms of all seeds are shown every so many steps, 0: never; in the others only those of
  // seeds in TRAINING and HOLDING, which gates ask for.
  int64_t telemetry_every = 1;
  int64_t time_every = 0;  // steps from one that is timed to the next; 0: none is
};

}  // namespace espalier::train
