// The environments of a job: populations, one a device, that live through episodes together.
//
// Kept true: environment e lives at site e mod D, as lane e / D of its population; what it does in a round
// depends on (options, e, round) alone, whoever else is on its device (with plan `split` also on how many
// share the device's pass over the data); all advance together, and the host waits once an epoch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "espalier/train/epoch_buffer.h"
#include "espalier/train/population_trainer.h"
#include "espalier/train/site.h"
#include "espalier/train/step_timing.h"

namespace espalier::train {

class Environments {
 public:
  // options: of all lanes together; acting: where controllers act.
  Environments(const PopulationOptions& options, std::vector<Site> sites, at::Device acting,
               OnFailure on_failure);

  // All lanes begin anew; the epochs that follow see samples in an order of this round's own. Nothing is
  // allocated.
  void begin_episode(int64_t round);
  EpochRecord train_epoch(Controller& controller, const Progress& progress = {});
  std::vector<LaneScore> test(const Progress& progress = {});  // in the order of environments

  // As PopulationTrainer's, of all of them.
  void at_every_batch(const std::function<void()>& call);
  void visit_state(StateArchive& archive);
  // What the steps since the last call took, those of all devices together.
  PartTimes take_times();

  int64_t num_lanes() const { return options_.lanes; }
  int64_t num_slots() const { return population(0).num_slots(); }
  int64_t episode_length() const { return options_.epochs; }
  int64_t epochs_done() const { return populations_.front()->epochs_done(); }  // of the episode
  int64_t host_parameters() const { return grow::num_parameters(population(0).host().options()); }
  size_t num_populations() const { return populations_.size(); }
  int64_t num_retired() const;
  PopulationTrainer& trainer(size_t index) { return *populations_[index]; }
  grow::Population& population(size_t index) const { return populations_[index]->population(); }
  const EpochBuffer& buffer() const { return *buffer_; }

 private:
  PopulationOptions options_;  // of all lanes together
  std::vector<std::unique_ptr<PopulationTrainer>> populations_;
  std::unique_ptr<EpochBuffer> buffer_;
  StepTiming acting_;
};

}  // namespace espalier::train
