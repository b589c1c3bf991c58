// `espalier train population`: how many lanes, which host, who decides how they grow.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/train/training_options.h"

namespace espalier::train {

struct PopulationOptions : TrainingOptions {
  std::string devices = "auto";
  int64_t lanes = 8;
  std::string host = "cifar_baseline";
  std::string plan = "own";
  std::string controller = "none";
  std::string gates = "permissive";
  int64_t embargo = 5;
  int64_t telemetry_every = 1;         // of train ppo and evaluate, see there
  int64_t time_every = 0;              // of train ppo
  std::string lanes_flag = "--lanes";  // as users of the job know it
  std::string batch_flag = "--batch";

  template <class Visitor>
  void visit(Visitor&& v) {
    visit_devices(v);
    v({.name = "lanes", .help = "networks that are trained at once", .low = 1, .high = 4096}, lanes);
    v({.name = "host",
       .help = "the network that every lane begins as",
       .choices = {"cifar_baseline", "cifar_scale", "cifar_wide", "cifar_deep"}},
      host);
    v({.name = "plan",
       .help = "own: a full pass an epoch for every lane; split: one pass shared out over them",
       .choices = {"own", "split"}},
      plan);
    v({.name = "controller",
       .help = "who decides, after every epoch, what grows",
       .choices = {"none", "random", "heuristic"}},
      controller);
    v({.name = "gates",
       .help = "what a seed must show to pass to its next stage; strict: also that it helps",
       .choices = {"permissive", "strict"}},
      gates);
    v({.name = "embargo", .help = "epochs that a slot rests after a removal", .low = 1, .high = 1e6},
      embargo);
    TrainingOptions::visit(v);
  }

  template <class Visitor>
  void visit_devices(Visitor&& v) {
    v({.name = "devices",
       .help =
           "where the networks live, in turn: cpu, cuda:0 or cuda:0,cuda:1; auto: a GPU where there is one",
       .placeholder = "LIST"},
      devices);
  }
};

}  // namespace espalier::train
