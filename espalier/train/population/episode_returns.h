// The return of an episode for every lane, whoever decided: sums of what was read after its epochs.
#pragma once

#include <cstdint>
#include <vector>

#include "espalier/train/population/epoch_record.h"

namespace espalier::run {
class StateArchive;
}

namespace espalier::train {

class EpisodeReturns {
 public:
  void begin(int64_t lanes, int64_t num_terms);
  void add(const EpochRecord& epoch);  // after every epoch, in their order

  void visit_state(run::StateArchive& archive);

  // Since begin().
  const std::vector<std::vector<double>>& terms() const { return terms_; }  // [L] by the rule's names
  const std::vector<int64_t>& lengths() const { return lengths_; }          // [L] decisions that counted
  const std::vector<double>& returns() const { return returns_; }           // [L] undiscounted

 private:
  std::vector<std::vector<double>> terms_;
  std::vector<int64_t> lengths_;
  std::vector<double> returns_;
};

}  // namespace espalier::train
