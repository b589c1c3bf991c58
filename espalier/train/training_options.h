// What the jobs that train hosts are told besides: the field, the optimiser, the precision.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/train/job_options.h"

namespace espalier::train {

struct TrainingOptions : JobOptions {
  std::string field;
  double learning_rate = 0.4;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double label_smoothing = 0;
  double clip = 0;
  std::string precision = "auto";

  template <class Visitor>
  void visit(Visitor&& v) {
    JobOptions::visit(v);
    v({.name = "field", .help = "the field to train on, where the data has several"}, field);
    v({.name = "learning-rate",
       .help = "its peak; it rises over the first fifth, then falls to 0",
       .low = 0,
       .high = 100},
      learning_rate);
    v({.name = "momentum", .help = "of SGD, Nesterov's; 0: none", .low = 0, .high = 1}, momentum);
    v({.name = "weight-decay", .help = "of SGD", .low = 0, .high = 1}, weight_decay);
    v({.name = "label-smoothing", .help = "weight of a label spread over all classes", .low = 0, .high = 1},
      label_smoothing);
    v({.name = "clip",
       .help = "largest gradient norm of a lane's host, and of each of its seeds; 0: any",
       .low = 0,
       .high = 1e9},
      clip);
    v({.name = "precision",
       .help = "what is computed in; weights stay fp32; auto: bf16 on a GPU, fp32 on the CPU",
       .choices = {"auto", "fp32", "bf16", "fp16"}},
      precision);
  }
};

}  // namespace espalier::train
