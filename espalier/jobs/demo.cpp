#include "espalier/jobs/demo.h"

namespace espalier::jobs {

EvaluateConfig demo_config() {
  EvaluateConfig demo;
  demo.controllers = {"none", "heuristic"};
  demo.episodes = 1;
  train::PopulationConfig& networks = demo.population;
  networks.source.data = "synthetic:shapes10";
  networks.source.synthetic_size = {16, 16};
  networks.source.synthetic_train = 2500;
  networks.source.synthetic_test = 1000;
  networks.resident.validation = 500;
  networks.host = "tiny";
  networks.lanes = 8;
  networks.plan = data::PlanKind::kOwn;
  networks.batch = 50;
  networks.epochs = 30;
  networks.learning_rate = 0.3;
  networks.seed_warm_up = 20;  // half an epoch: its epochs are short
  return demo;
}

}  // namespace espalier::jobs
