// An episode in which seeds grow, played twice: the rehearsal makes what is made at first use (seeds'
// storage, plans of convolutions, captured graphs), so that what is looked at in the second is the steady
// state with growth on.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "espalier/core/seed_stage.h"
#include "espalier/train/control/controller.h"
#include "espalier/train/population/trainer.h"

namespace espalier::cli {

class RehearsedEpisode {
 public:
  RehearsedEpisode(train::PopulationTrainer& environments, train::Controller& controller)
      : environments_(environments), controller_(controller) {}

  // A whole episode; then the same from its beginning, up to the step before `steps` that still have a
  // decision to make: seeds have had time to grow by then. Counts begin there.
  void rehearse(int64_t steps);
  // An epoch, validation, a decision.
  void step();

  // Over the steps since rehearse(): how many seeds of all networks were in each stage, summed.
  int64_t seeds_in(SeedStage stage) const { return seeds_[static_cast<size_t>(stage)]; }
  // "seeds in these steps: TRAINING 4, BLENDING 2; planted 1", or that there were none.
  std::string text() const;

 private:
  void begin();

  train::PopulationTrainer& environments_;
  train::Controller& controller_;
  std::array<int64_t, kNumSeedStages> seeds_{};
  int64_t num_planted_ = 0;
};

}  // namespace espalier::cli
