// A job small enough for every example: drawn images of 16x16 pixels, on the CPU, some seconds.
#pragma once

#include <cstdio>

#include "espalier/train.h"

inline espalier::train::PopulationConfig small_job() {
  espalier::train::PopulationConfig options;
  options.source.synthetic_train = 600;
  options.source.synthetic_test = 200;
  options.source.synthetic_size = {16, 16};
  options.devices = {espalier::parse_device("cpu")};
  options.lanes = 4;
  options.epochs = 6;
  options.batch = 25;
  options.learning_rate = 0.1;
  return options;
}

// Trains all epochs under the controller, one line each; returns the mean accuracy on the test split.
inline double train_all(espalier::train::PopulationTrainer& population,
                        espalier::train::Controller& controller) {
  while (population.epochs_done() < population.episode_length()) {
    const espalier::train::EpochRecord epoch = population.train_epoch(controller);
    long seeds = 0;
    for (const auto& lane : epoch.lanes)
      for (const auto& slot : lane.slots) seeds += espalier::holds_seed(slot.state.stage) ? 1 : 0;
    std::printf("epoch %ld: validation accuracy %.1f %%, %ld seeds\n", static_cast<long>(epoch.epoch),
                100 * epoch.mean_validated().accuracy, seeds);
  }
  double mean = 0;
  for (const espalier::train::LaneScore& score : population.test())
    mean += score.accuracy / static_cast<double>(population.num_lanes());
  std::printf("test accuracy %.1f %%\n", 100 * mean);
  return mean;
}
