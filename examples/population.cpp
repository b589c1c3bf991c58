// Four small networks, trained at once as lanes of one tensor, that grow by a rule.
#include "examples/small_job.h"

using namespace espalier;

int main() {
  train::PopulationConfig options = small_job();
  options.controller = "heuristic";
  train::PopulationTrainer population(options);
  return train_all(population, *train::controller_for(options)) > 0.15 ? 0 : 1;  // guessing: 10 %
}
