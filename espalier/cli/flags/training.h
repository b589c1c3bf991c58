// Flags of training: batches, augmentation, the optimiser.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/options.h"
#include "espalier/core/shared_options.h"
#include "espalier/train/population/config.h"

namespace espalier::cli {

inline constexpr std::string_view kTrainingFlags = "Training";

template <class Visitor>
void visit_epochs(Visitor&& visitor, train::JobConfig& job,
                  std::string_view help = "passes over the training split") {
  auto v = in_group(visitor, kTrainingFlags);
  v({.name = "epochs", .help = help, .low = 1, .high = 1e6}, job.epochs);
}

// Networks that a controller decides about as they train.
template <class Visitor>
void visit_steps(Visitor&& visitor, train::PopulationConfig& population) {
  auto v = in_group(visitor, kTrainingFlags);
  v({.name = "batches-per-step",
     .help = "batches between two decisions, whatever the size of the data: the pass over it goes on across "
             "decisions, and epochs and steps of an episode count decisions; 0: one whole pass",
     .low = 0,
     .high = 1e9},
    population.batches_per_step);
  v({.name = "validate-every",
     .help = "validate every so many steps; the last step of an episode is always validated",
     .low = 1,
     .high = 1e9},
    population.validate_every);
  v({.name = "validation-parts",
     .help =
         "parts that the validation split is cut into: each step scores one of them, in turn, and the last "
         "step of an episode all; fewer samples mean a larger error, which metrics state",
     .low = 1,
     .high = 1e6},
    population.validation_parts);
  v({.name = "validation-batch",
     .help =
         "samples per network that are scored at a time, on validation and test; 0: as many as keep a GPU "
         "busy, or 64 on the CPU, whatever --batch is",
     .low = 0,
     .high = 1 << 20},
    population.validation_batch);
}

// How flags call the ways of a rate after its warm-up.
template <class Curve>
std::vector<std::pair<std::string_view, Curve>> curve_names() {
  return {{"one-cycle", train::RateCurve::kLinear},
          {"cosine", train::RateCurve::kCosine},
          {"constant", train::RateCurve::kConstant},
          {"step", train::RateCurve::kStep}};
}

// How a rate moves over a run.
template <class Visitor>
void visit_schedule(Visitor&& visitor, std::string_view group, train::RateCurve& schedule, double& warm_up) {
  auto v = in_group(visitor, group);
  v({.name = "schedule",
     .help =
         "how the rate moves after the warm-up: it falls to 0 linearly (one-cycle) or along a cosine, stays "
         "(constant), or falls to a tenth at 50 % and again at 75 % of all batches (step)"},
    one_of(schedule, curve_names<train::RateCurve>()));
  v({.name = "warm-up", .help = "share of the run over which the rate rises", .low = 0, .high = 0.99},
    warm_up);
}

// Whatever is trained.
template <class Visitor>
void visit_batches(Visitor&& visitor, train::JobConfig& job) {
  auto v = in_group(visitor, kTrainingFlags);
  v(batch_option(
        "samples per network and step; where several ranks share a batch, those of all ranks together"),
    job.batch);
  v({.name = "crop-pad", .help = "pixels to pad on each side before a random crop", .low = 0, .high = 1024},
    job.crop_pad);
  v({.name = "flip", .help = "mirror half of the samples"}, job.flip);
  v({.name = "seed",
     .help = "seed of weights, the order of samples, their augmentation, and random decisions"},
    job.seed);
}

template <class Visitor>
void visit_learning_rate(Visitor&& visitor, std::string_view group, double& learning_rate) {
  auto v = in_group(visitor, group);
  v({.name = "learning-rate",
     .help = "peak of the learning rate; --schedule and --warm-up say how it moves",
     .low = 0,
     .high = 100},
    learning_rate);
}

// How gradients move weights, and of which loss. Config: that of whatever is trained; clip_help: whose
// gradients are clipped.
template <class Visitor, class Config>
void visit_gradients(Visitor&& visitor, std::string_view group, Config& config, std::string_view clip_help) {
  auto v = in_group(visitor, group);
  v({.name = "momentum", .help = "Nesterov momentum of SGD; 0: none", .low = 0, .high = 1}, config.momentum);
  v({.name = "weight-decay", .help = "weight decay of the optimiser", .low = 0, .high = 1},
    config.weight_decay);
  v({.name = "label-smoothing", .help = "weight of a label spread over all classes", .low = 0, .high = 1},
    config.label_smoothing);
  v({.name = "clip", .help = clip_help, .low = 0, .high = 1e9}, config.clip);
}

// One network that ranks train together. help: which statistics.
template <class Visitor>
void visit_sync_norm(Visitor&& visitor, std::string_view group, bool& sync_norm, std::string_view help) {
  auto v = in_group(visitor, group);
  v({.name = "sync-norm", .help = help}, sync_norm);
}

// Hosts and what grows on them.
template <class Visitor>
void visit_optimizer(Visitor&& visitor, train::PopulationConfig& population) {
  auto v = in_group(visitor, kTrainingFlags);
  v({.name = "field", .help = "the field to train on, where the data has several"}, population.field);
  visit_learning_rate(visitor, kTrainingFlags, population.learning_rate);
  visit_schedule(visitor, kTrainingFlags, population.schedule, population.warm_up);
  visit_gradients(visitor, kTrainingFlags, population,
                  "largest gradient norm of a network's host, and of each of its seeds; 0: any");
}

// What counts as a collapse of a network whose numbers are finite.
template <class Visitor>
void visit_governor(Visitor&& visitor, train::GovernorConfig& governor) {
  auto v = in_group(visitor, kTrainingFlags);
  v({.name = "governor",
     .help = "on: a network that collapses, though its numbers are finite, goes back to its last good state"},
    one_of(governor.governing, {{"on", train::Governing::kOn}, {"off", train::Governing::kOff}}));
  v({.name = "governor-ratio",
     .help = "a loss has jumped when it is above so many times its last good value",
     .low = 1,
     .high = 1e6},
    governor.ratio);
  v({.name = "governor-spread",
     .help =
         "a loss has jumped only when it is also higher by so many times its usual change from step to step",
     .low = 0,
     .high = 1e6},
    governor.spread);
  v({.name = "governor-window", .help = "steps over which the usual change is taken", .low = 1, .high = 1e6},
    governor.window);
  v({.name = "governor-margin",
     .help =
         "validation accuracy within so many standard errors of guessing has collapsed, once it was three "
         "times as far above",
     .low = 0,
     .high = 1e6},
    governor.margin);
  v({.name = "governor-floor",
     .help =
         "no loss has jumped that is still below this share of the loss of guessing, which is the logarithm "
         "of the number of classes",
     .low = 0,
     .high = 1e6},
    governor.floor);
}

}  // namespace espalier::cli
