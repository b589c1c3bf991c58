// `espalier train ppo` and `espalier evaluate`: the environments, the policy that decides how they grow, and
// how it learns.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "espalier/core/device_name.h"
#include "espalier/grow/population.h"
#include "espalier/train/policy_controller.h"
#include "espalier/train/population_options.h"

namespace espalier::train {

// What a policy is and how it learns.
struct PolicyTrainingOptions {
  int64_t encoder_size = 512;
  int64_t hidden_size = 512;
  std::string reward = "shaped";
  double gamma = 0.995;
  double gae_lambda = 0.95;
  double policy_rate = 3e-4;
  double clip_ratio = 0.2;
  double op_entropy_first = 0.05;
  double op_entropy_last = 0.005;
  double entropy_first = 0.01;
  double entropy_last = 0.001;
  double target_kl = 0.02;
  int64_t update_epochs = 4;
  int64_t minibatches = 1;

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "encoder-size", .help = "width of the policy's encoder", .low = 1, .high = 1 << 16},
      encoder_size);
    v({.name = "hidden-size", .help = "width of the policy's LSTM", .low = 1, .high = 1 << 16}, hidden_size);
    v({.name = "reward",
       .help = "shaped: every step by what it changed, and the end; sparse: the end alone",
       .choices = {"shaped", "sparse"}},
      reward);
    v({.name = "gamma", .help = "discount of a step", .low = 0, .high = 1}, gamma);
    v({.name = "gae-lambda", .help = "of generalised advantage estimation", .low = 0, .high = 1}, gae_lambda);
    v({.name = "policy-rate", .help = "learning rate of the policy (Adam)", .low = 0, .high = 1},
      policy_rate);
    v({.name = "clip-ratio", .help = "PPO's, of every head's ratio", .low = 0, .high = 1}, clip_ratio);
    v({.name = "op-entropy",
       .help = "weight of the op's entropy in the first round: with less of it, waiting is soon all it does",
       .low = 0,
       .high = 10},
      op_entropy_first);
    v({.name = "op-entropy-last", .help = "and in the last; in between along a line", .low = 0, .high = 10},
      op_entropy_last);
    v({.name = "entropy", .help = "the same of every other head", .low = 0, .high = 10}, entropy_first);
    v({.name = "entropy-last", .help = "and in the last", .low = 0, .high = 10}, entropy_last);
    v({.name = "target-kl", .help = "an update ends where the policy moved further", .low = 0, .high = 1e9},
      target_kl);
    v({.name = "update-epochs", .help = "passes over a round in an update", .low = 1, .high = 1000},
      update_epochs);
    v({.name = "minibatches",
       .help = "parts of a round's lanes, a step of Adam each",
       .low = 1,
       .high = 4096},
      minibatches);
  }
};

// What lives through episodes, and where.
struct EnvironmentOptions {
  PopulationOptions population;  // lanes: the environments; epochs: of an episode
  std::string policy_device;
  bool gpu_preload = false;
  std::string slots;
  int64_t max_seeds = 3;
  double parameter_budget = 1;
  bool amp = false;
  std::string amp_dtype = "bfloat16";

  EnvironmentOptions() {
    population.epochs = 25;
    population.plan = "split";
    population.lanes_flag = "--envs";
    population.batch_flag = "--batch-per-env";
  }

  template <class Visitor>
  void visit(Visitor&& v) {
    population.source.visit(v);
    population.resident.visit(v);
    v({.name = "gpu-preload", .help = "another name of --residency device"}, gpu_preload);
    v({.name = "field", .help = "the field to train on, where the data has several"}, population.field);
    population.visit_devices(v);
    v({.name = "policy-device", .help = "where the policy lives; without it the first of the devices"},
      policy_device);
    v({.name = "envs", .help = "networks that are trained at once", .low = 1, .high = 4096},
      population.lanes);
    v({.name = "episode-length",
       .help = "steps of an episode: an epoch and a decision each",
       .low = 2,
       .high = 1e6},
      population.epochs);
    v({.name = "slots",
       .help = "where seeds may be planted, such as r0c0,r0c1; without it everywhere",
       .placeholder = "LIST"},
      slots);
    v({.name = "max-seeds", .help = "seeds that a network may hold at once", .low = 1, .high = 1e6},
      max_seeds);
    v({.name = "parameter-budget",
       .help = "added parameters, as a share of the host's, that the policy is shown as the whole budget",
       .low = 1e-6,
       .high = 1e6},
      parameter_budget);
    v({.name = "host",
       .help = "the network that every environment begins with",
       .choices = {"cifar_baseline", "cifar_scale", "cifar_wide", "cifar_deep"}},
      population.host);
    v({.name = "batch-per-env", .help = "samples a network and batch", .low = 1, .high = 1 << 20},
      population.batch);
    v({.name = "plan",
       .help =
           "split: one pass over the data a step, shared out over a device's networks; own: a pass for each",
       .choices = {"own", "split"}},
      population.plan);
    v({.name = "gates",
       .help = "what a seed must show to pass to its next stage; strict: also that it helps",
       .choices = {"permissive", "strict"}},
      population.gates);
    v({.name = "embargo", .help = "steps that a slot rests after a removal", .low = 1, .high = 1e6},
      population.embargo);
    v({.name = "telemetry-every",
       .help =
           "show the gradient norms of all seeds every so many steps, 0: never; in the others only those of "
           "seeds in TRAINING and HOLDING, which gates ask for",
       .low = 0,
       .high = 1e6},
      population.telemetry_every);
    v({.name = "learning-rate",
       .help = "of the networks: its peak; it rises over the first fifth of an episode, then falls to 0",
       .low = 0,
       .high = 100},
      population.learning_rate);
    v({.name = "momentum", .help = "of SGD, Nesterov's; 0: none", .low = 0, .high = 1}, population.momentum);
    v({.name = "weight-decay", .help = "of SGD", .low = 0, .high = 1}, population.weight_decay);
    v({.name = "clip",
       .help = "largest gradient norm of a network's host, and of each of its seeds; 0: any",
       .low = 0,
       .high = 1e9},
      population.clip);
    v({.name = "crop-pad", .help = "pixels to pad on each side before a random crop", .low = 0, .high = 1024},
      population.crop_pad);
    v({.name = "flip", .help = "mirror half of the samples"}, population.flip);
    v({.name = "amp", .help = "train in 16 bits on a GPU; on the CPU it means fp32"}, amp);
    v({.name = "amp-dtype", .help = "of --amp", .choices = {"bfloat16", "float16"}}, amp_dtype);
    v({.name = "seed", .help = "of everything: weights, the order of samples, decisions"}, population.seed);
    v({.name = "graphs", .help = "on a GPU, capture steps once and replay them"}, population.graphs);
    v({.name = "deterministic",
       .help = "the same bits on every run of one machine with one number of threads; never times anything"},
      population.deterministic);
    v({.name = "convolutions",
       .help = "convolutions.json of an earlier run: do them as they were chosen there",
       .placeholder = "FILE"},
      population.convolutions);
    v({.name = "device-memory",
       .help = "cap on what is allocated on a device, such as 20GiB; 0: none",
       .low = 0,
       .format = OptionFormat::kByteSize},
      population.device_memory);
    population.RunOptions::visit_folder(v);
  }
};

struct PpoJobOptions : EnvironmentOptions {
  int64_t rounds = 100;
  std::string controller = "ppo";
  std::string save;
  bool timing = true;
  PolicyTrainingOptions policy;

  PpoJobOptions() { population.time_every = 1; }

  template <class Visitor>
  void visit(Visitor&& v) {
    v({.name = "rounds", .help = "episodes of all environments, an update after each", .low = 1, .high = 1e9},
      rounds);
    v({.name = "controller",
       .help = "who decides; only ppo learns, the others are there to compare with",
       .choices = {"ppo", "heuristic", "random", "none"}},
      controller);
    v({.name = "save", .help = "write the policy there after every round", .placeholder = "FILE"}, save);
    population.RunOptions::visit_checkpoints(v);
    v({.name = "timing", .help = "measure what training, validation and acting take, without waiting for it"},
      timing);
    v({.name = "time-every", .help = "steps from one that is measured to the next", .low = 1, .high = 1e9},
      population.time_every);
    EnvironmentOptions::visit(v);
    policy.visit(v);
  }
};

// Where controllers act.
at::Device policy_device_of(const EnvironmentOptions& options);

// What every population is told: precision and residency resolved for a device.
PopulationOptions population_options(const EnvironmentOptions& options, const DeviceName& device);

// What the policy is told: its sizes are the population's.
PolicyOptions policy_options(const EnvironmentOptions& options, const PolicyTrainingOptions& policy,
                             const grow::Population& population);
policy::RewardOptions reward_options(const PolicyTrainingOptions& policy);

// none, random or heuristic, within the same slots and number of seeds as the policy.
std::unique_ptr<Controller> rule_controller(const std::string& name, const EnvironmentOptions& options,
                                            const grow::Population& population);

}  // namespace espalier::train
