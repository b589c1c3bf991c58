// Flags of growth: how many networks, of which host, and what seeds may do in them.
#pragma once

#include <optional>
#include <utility>

#include "espalier/cli/flags/machine.h"
#include "espalier/cli/flags/training.h"
#include "espalier/core/options.h"
#include "espalier/core/shared_options.h"
#include "espalier/grow/host/registry.h"
#include "espalier/train/control/ppo_config.h"
#include "espalier/train/population/config.h"

namespace espalier::cli {

inline constexpr std::string_view kGrowthFlags = "Growth";

template <class Visitor>
void visit_networks(Visitor&& visitor, train::PopulationConfig& population) {
  auto v = in_group(visitor, "Networks");
  v(lanes_option("networks that are trained at once"), population.lanes);
  v({.name = "host", .help = "the network that every lane begins as", .choices = grow::hosts().names()},
    population.host);
  v({.name = "plan",
     .help = "own: in an epoch every lane passes over all of the data; split: the lanes share out one pass"},
    one_of(population.plan, {{"own", data::PlanKind::kOwn}, {"split", data::PlanKind::kSplit}}));
  v({.name = "split-by",
     .help =
         "with --plan split, which lanes share a pass out: all, wherever they are (world), or those of each "
         "device (device)"},
    one_of(population.split_by, {{"world", data::SplitBy::kWorld}, {"device", data::SplitBy::kDevice}}));
}

// How seeds are trained beside their hosts.
template <class Visitor>
void visit_seeds(Visitor&& visitor, train::PopulationConfig& population) {
  auto v = in_group(visitor, kGrowthFlags);
  v({.name = "seed-rate",
     .help = "a seed's learning rate, as a multiple of its host's (--seed-schedule)",
     .low = 0,
     .high = 1000},
    population.seed_rate);
  v({.name = "seed-warm-up",
     .help = "batches over which a new seed's rate rises linearly, on top of the schedule; 0: no warm-up",
     .low = 0,
     .high = 1e9},
    population.seed_warm_up);
  auto names = curve_names<std::optional<train::RateCurve>>();
  names.insert(names.begin(), {"host", std::nullopt});
  v({.name = "seed-schedule",
     .help =
         "how a seed's rate moves after its warm-up: with its host's (host), or from the peak along one of "
         "the curves of --schedule, over the batches left when it begins to train"},
    one_of(population.seed_schedule, std::move(names)));
}

template <class Visitor>
void visit_gates(Visitor&& visitor, train::PopulationConfig& population) {
  auto v = in_group(visitor, kGrowthFlags);
  v({.name = "gates", .help = "what a seed must show to pass to its next stage; strict: also that it helps"},
    one_of(population.gates.mode,
           {{"permissive", grow::GateMode::kPermissive}, {"strict", grow::GateMode::kStrict}}));
  v({.name = "gate-training-steps",
     .help = "steps that a seed must have trained before it is blended in (G2)",
     .low = 0,
     .high = 1e6},
    population.gates.min_training_steps);
  v({.name = "gate-least-norm",
     .help = "least gradient norm of a seed that learns (G2, G5)",
     .low = 0,
     .high = 1e9},
    population.gates.min_gradient_norm);
  v({.name = "gate-largest-norm",
     .help = "largest gradient norm of a seed that has not exploded (G2, G5)",
     .low = 0,
     .high = 1e30},
    population.gates.max_gradient_norm);
  v({.name = "gate-improvement",
     .help = "strict: points of validation accuracy that the network must gain while a seed trains (G2)",
     .low = -100,
     .high = 100},
    population.gates.min_improvement_points);
  v({.name = "gate-gradient-ratio",
     .help = "strict: least gradient norm of a seed, as a share of its host's (G2)",
     .low = 0,
     .high = 1e9},
    population.gates.min_gradient_ratio);
  v({.name = "gate-contribution",
     .help = "strict: points of accuracy; a seed is kept if it contributes more (G5)",
     .low = -100,
     .high = 100},
    population.gates.min_contribution_points);
  v({.name = "embargo", .help = "steps that a slot rests after a removal", .low = 1, .high = 1e6},
    population.embargo);
}

// Jobs that live through episodes.
template <class Visitor>
void visit_episodes(Visitor&& visitor, train::EnvironmentConfig& environments) {
  auto v = in_group(visitor, kGrowthFlags);
  v({.name = "episode-length",
     .help = "steps per episode: each is an epoch (or --batches-per-step batches) and a decision",
     .low = 2,
     .high = 1e6},
    environments.population.epochs);
  v({.name = "slots",
     .help = "where seeds may be planted, such as r0c0,r0c1; without this flag everywhere",
     .placeholder = "LIST"},
    names_in(environments.slots, "--slots"));
  v({.name = "max-seeds", .help = "seeds that a network may hold at once", .low = 1, .high = 1e6},
    environments.max_seeds);
  v({.name = "parameter-budget",
     .help = "added parameters that the policy sees as its whole budget, as a share of the host's",
     .low = 1e-6,
     .high = 1e6},
    environments.parameter_budget);
  v({.name = "telemetry-every",
     .help =
         "show the gradient norms of all seeds every so many steps, 0: never; in other steps only those of "
         "seeds in TRAINING and HOLDING, which gates need",
     .low = 0,
     .high = 1e6},
    environments.population.telemetry_every);
  auto on_machine = in_group(visitor, kMachineFlags);
  on_machine({.name = "policy-device",
              .help = "where the policy lives; without this flag on the first of the devices",
              .placeholder = "DEVICE"},
             device_member(environments.policy_device, ""));
}

}  // namespace espalier::cli
