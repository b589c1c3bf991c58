// The network of a LINet job's best epoch, with its heads, in best.safetensors.
//
// Kept true: it is part of the run's state, so that a run that goes on from any of its checkpoints has the
// best network of the epochs before, whatever the file was overwritten with in epochs that do not count.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "espalier/linet/file.h"
#include "espalier/train/linet/trainer.h"

namespace espalier::jobs {

class BestLinet {
 public:
  // metadata: of the file, beside the network's shape and what this adds.
  BestLinet(std::string path, train::LinetTrainer& trainer, Metadata metadata);

  // The network as it is now, of this epoch. validation_accuracy: NaN: none was measured.
  void take(int64_t epoch, double validation_accuracy);
  void write() const;  // the file
  void put_back();     // into the trainer's network and heads
  void visit_state(run::StateArchive& archive);

  int64_t epoch() const { return epoch_; }  // 0: there is none yet

 private:
  linet::NamedTensors live() const;

  std::string path_;
  train::LinetTrainer& trainer_;
  Metadata metadata_;
  int64_t epoch_ = 0;
  double validation_accuracy_ = std::numeric_limits<double>::quiet_NaN();
  linet::NamedTensors kept_;  // as live(), in host memory
};

}  // namespace espalier::jobs
