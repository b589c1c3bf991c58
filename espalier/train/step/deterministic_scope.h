// How a run chooses its algorithms: by timing them, by fixed deterministic ones, or as an earlier run did.
#pragma once

#include <string>

namespace espalier::train {

// While it lives and where it is wanted, torch refuses what is not deterministic, and nothing is timed.
class DeterministicScope {
 public:
  explicit DeterministicScope(bool wanted);
  ~DeterministicScope();
  DeterministicScope(const DeterministicScope&) = delete;
  DeterministicScope& operator=(const DeterministicScope&) = delete;

 private:
  bool algorithms_, fills_, cudnn_, benchmark_;  // torch's own, to put back
};

// Convolutions as they were chosen by the run that wrote this convolutions.json; an empty path: no matter.
void repeat_convolutions(const std::string& path);

}  // namespace espalier::train
