// What a command says of a comparison while it plays: evaluate, demo, and train ppo --reward-ab.
//
// Kept true: a comparison that a signal stops says how to go on, whether it had begun or not.
#pragma once

#include <string>

#include "espalier/cli/command.h"
#include "espalier/jobs/evaluate.h"

namespace espalier::cli {

class ComparisonShow {
 public:
  // early: said where a signal comes while it is being prepared; whole lines.
  ComparisonShow(const Context& context, std::string early);
  ~ComparisonShow();
  ComparisonShow(const ComparisonShow&) = delete;
  ComparisonShow& operator=(const ComparisonShow&) = delete;

  // Until this object is gone.
  jobs::EvaluateEvents events();

 private:
  const Context& context_;
  std::string early_;
  bool is_prepared_ = false;  // or about to be
  bool has_begun_ = false;
};

}  // namespace espalier::cli
