// What a population will take on its device, from shapes alone. See plan.h.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "espalier/grow/host/interface.h"
#include "espalier/grow/host/shape.h"
#include "espalier/grow/seeds/blueprint.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/memory/data.h"
#include "espalier/train/memory/plan.h"
#include "espalier/train/population/config.h"
#include "espalier/train/population/shard.h"

namespace espalier::train {

// A host of a program's own: its shapes as one lane of it has them, and what it says of its activations.
struct OwnHost {
  std::string name;  // empty: it has none
  std::shared_ptr<grow::Host> lane;
  std::function<double(const grow::HostFrame&, at::Device)> held = {};  // see HostKind
};

struct PopulationNeeds {
  PopulationConfig options;  // lanes: those that live on the device; batch: this rank's part of it
  // Image sizes and classes are filled in; lanes are the options'. None: one of a program's own.
  std::optional<grow::CnnHostOptions> host;
  std::optional<OwnHost> own_host = {};  // looked at where `host` is none
  grow::BlueprintRegistry blueprints = {};
  DataNeeds data;
  at::Device device = at::kCPU;        // need not be there
  std::optional<GrowthLimits> growth;  // none: nothing is ever planted
  OnFailure on_failure = OnFailure::kRollBack;
  int64_t ranks = 1;  // that share every batch out
};

// The host that the options name, or that `own` makes, for data of this kind.
void set_host(PopulationNeeds& needs, const grow::HostFrame& frame, const grow::HostMaker& own = nullptr);

// Without CUDA's own part and the budget.
MemoryPlan population_parts(const PopulationNeeds& needs);

}  // namespace espalier::train
