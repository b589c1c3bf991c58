// Which checkpoints of a run stay on the disk: the newest, and the one with the best score.
//
// Used by one thread at a time: the writer's once a checkpoint is on the disk, the run's while none is being
// written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "espalier/run/files/checkpoint_folder.h"

namespace espalier::run {

class KeptCheckpoints {
 public:
  // keep: how many of the newest.
  KeptCheckpoints(CheckpointFolder folder, int64_t keep) : folder_(std::move(folder)), keep_(keep) {}

  // The best score among those that are there; reads the manifests that are new.
  std::optional<double> best_score();
  // A new one is on the disk: those that nobody needs any more go.
  void add(const std::string& name, std::optional<double> score);

 private:
  std::optional<std::string> best();

  CheckpointFolder folder_;
  int64_t keep_;
  std::map<std::string, std::optional<double>> scores_;  // by the names of those that are there
};

}  // namespace espalier::run
