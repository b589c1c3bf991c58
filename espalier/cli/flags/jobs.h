// What each job takes on the command line: groups of flags over the library's configurations. job() is what
// the library runs; it records the flags as they were given.
#pragma once

#include <optional>
#include <string>

#include "espalier/cli/flags/data.h"
#include "espalier/cli/flags/growth.h"
#include "espalier/cli/flags/linet.h"
#include "espalier/cli/flags/machine.h"
#include "espalier/cli/flags/policy.h"
#include "espalier/cli/flags/run.h"
#include "espalier/cli/flags/training.h"
#include "espalier/core/options.h"
#include "espalier/jobs/evaluate.h"
#include "espalier/jobs/linet.h"
#include "espalier/jobs/population.h"
#include "espalier/jobs/ppo.h"
#include "espalier/jobs/reward_ab.h"

namespace espalier::cli {

// train host: one small network, that is, a population of one lane that nothing grows on.
struct HostFlags {
  std::optional<DeviceName> device;
  train::PopulationConfig population;
  run::RunConfig run;

  HostFlags() {
    population.epochs = 3;
    population.batch = 128;
    population.learning_rate = 0.2;
    population.lanes = 1;
    population.host = "cifar_wide";
  }

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_source(v, population.source);
    visit_resident(v, population.resident);
    visit_epochs(v, population);
    visit_batches(v, population);
    visit_optimizer(v, population);
    visit_sync_norm(v, kTrainingFlags, population.sync_norm,
                    "with several ranks, take the statistics of batch norms over the whole batch instead "
                    "of each rank's part");
    visit_governor(v, population.governor);
    visit_device(v, device);
    visit_machine(v, population);
    visit_run(v, run);
  }

  train::PopulationConfig one_lane() const;
  jobs::PopulationJob job() const;
};

// "who decides, ...: none, random, heuristic, or ppo:FILE ...", from the registry of controllers.
std::string_view controller_help();

// "which controllers to compare: none, random, heuristic, ppo:FILE ...", from the same.
std::string_view controllers_help();

// train population.
struct PopulationFlags {
  train::PopulationConfig population;
  std::string from;
  run::RunConfig run;

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_source(v, population.source);
    visit_resident(v, population.resident);
    visit_networks(v, population);
    auto growth = in_group(v, kGrowthFlags);
    growth({.name = "controller", .help = controller_help(), .placeholder = "NAME"}, population.controller);
    growth({.name = "from",
            .help = "begin with grown networks instead of fresh hosts: a run, or what export wrote; one for "
                    "all lanes, or one for each",
            .placeholder = "RUN"},
           from);
    visit_seeds(v, population);
    visit_gates(v, population);
    visit_epochs(v, population,
                 "passes over the training split; with --batches-per-step: steps of so many batches");
    visit_steps(v, population);
    visit_batches(v, population);
    visit_optimizer(v, population);
    visit_governor(v, population.governor);
    visit_devices(v, population.devices);
    visit_machine(v, population);
    visit_run(v, run);
  }

  jobs::PopulationJob job() const;
};

struct LinetFlags {
  train::LinetConfig linet;
  run::RunConfig run;

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_source(v, linet.source);
    visit_resident(v, linet.resident);
    visit_linet(v, linet);
    visit_epochs(v, linet);
    visit_batches(v, linet);
    visit_device(v, linet.device);
    visit_machine(v, linet);
    visit_run(v, run);
  }

  jobs::LinetJob job() const;
};

// What train ppo and evaluate have in common.
template <class Visitor>
void visit_environments(Visitor&& v, train::EnvironmentConfig& environments) {
  train::PopulationConfig& population = environments.population;
  visit_source(v, population.source);
  visit_resident(v, population.resident);
  visit_networks(v, population);
  visit_episodes(v, environments);
  visit_seeds(v, population);
  visit_gates(v, population);
  visit_reward(v, environments.reward);
  visit_steps(v, population);
  visit_batches(v, population);
  visit_optimizer(v, population);
  visit_governor(v, population.governor);
  visit_devices(v, population.devices);
  visit_machine(v, population);
}

// "ppo", and the controllers that there are.
std::vector<std::string_view> deciders();

struct PpoFlags {
  train::PpoConfig ppo;
  run::RunConfig run;
  std::string save;
  std::string reward_ab;

  template <class Visitor>
  void visit(Visitor&& v) {
    auto policy = in_group(v, "Policy");
    policy({.name = "rounds",
            .help = "episodes of all environments, an update after each",
            .low = 1,
            .high = 1e9},
           ppo.rounds);
    policy({.name = "controller",
            .help = "who decides: only ppo learns, the others are there to compare with",
            .choices = deciders()},
           ppo.controller);
    policy({.name = "save", .help = "write the policy there after every round", .placeholder = "FILE"}, save);
    visit_policy(v, ppo.policy);
    visit_environments(v, ppo);
    auto reward = in_group(v, "Reward");
    reward(
        {.name = "reward-ab",
         .help = "two JSON files of reward options: a policy learns by each, with half of the networks, and "
                 "both are compared on held-out episodes",
         .placeholder = "FILE,FILE"},
        reward_ab);
    auto machine = in_group(v, kMachineFlags);
    machine({.name = "timing",
             .help = "measure how long training, validation and acting take, without waiting for the device"},
            ppo.timing);
    machine({.name = "time-every", .help = "measure every so many steps", .low = 1, .high = 1e9},
            ppo.population.time_every);
    visit_run(v, run);
  }

  jobs::PpoJob job() const;
  // The parts that --reward-ab asks for; reads its files.
  jobs::RewardAbJob reward_ab_job() const;
};

struct EvaluateFlags {
  jobs::EvaluateConfig evaluate;
  run::RunConfig run;

  template <class Visitor>
  void visit(Visitor&& v) {
    auto compared = in_group(v, "Comparison");
    compared({.name = "controllers", .help = controllers_help(), .placeholder = "LIST"},
             names_in(evaluate.controllers, "--controllers"));
    compared({.name = "episodes",
              .help = "episodes of all environments, for each controller",
              .low = 1,
              .high = 1e6},
             evaluate.episodes);
    compared({.name = "greedy", .help = "a policy takes the likeliest choices instead of drawing"},
             evaluate.greedy);
    compared({.name = "keep",
              .help = "a new folder for the best network of every controller and episode, by validation: "
                      "pairs of files as export writes them, for predict and --from",
              .placeholder = "DIR"},
             evaluate.keep);
    compared({.name = "keep-lanes",
              .help = "which networks --keep keeps: the best, or all that were not given up"},
             one_of(evaluate.keep_lanes, {{"best", jobs::KeptLanes::kBest}, {"all", jobs::KeptLanes::kAll}}));
    visit_environments(v, evaluate);
    visit_session(v, run);
  }

  jobs::EvaluateJob job() const;
};

}  // namespace espalier::cli
