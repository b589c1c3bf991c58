// What every training job is told: the data, the optimiser, the device and where results go.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/core/options.h"
#include "espalier/data/resident.h"
#include "espalier/data/sources/source.h"

namespace espalier::train {

struct TrainingOptions {
  data::SourceOptions source;
  data::ResidentOptions resident;
  std::string device = "auto";
  std::string field;
  int64_t epochs = 12;
  int64_t batch = 512;
  double learning_rate = 0.4;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  double label_smoothing = 0;
  double clip = 0;
  int64_t crop_pad = 4;
  bool flip = true;
  uint64_t seed = 0;
  std::string precision = "auto";
  bool graphs = true;
  bool deterministic = false;
  std::string convolutions;
  std::string run_dir;
  int64_t device_memory = 0;

  template <class Visitor>
  void visit(Visitor&& v) {
    source.visit(v);
    resident.visit(v);
    v({.name = "device", .help = "where to train: cpu, cuda, cuda:N, or auto: a GPU where there is one"},
      device);
    v({.name = "field", .help = "the field to train on, where the data has several"}, field);
    v({.name = "epochs", .help = "passes over the training split", .low = 1, .high = 1e6}, epochs);
    v({.name = "batch", .help = "samples a lane and step", .low = 1, .high = 1 << 20}, batch);
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
    v({.name = "crop-pad", .help = "pixels to pad on each side before a random crop", .low = 0, .high = 1024},
      crop_pad);
    v({.name = "flip", .help = "mirror half of the samples"}, flip);
    v({.name = "seed", .help = "of weights, the order of samples, their augmentation, and random decisions"},
      seed);
    v({.name = "precision",
       .help = "what is computed in; weights stay fp32; auto: bf16 on a GPU, fp32 on the CPU",
       .choices = {"auto", "fp32", "bf16", "fp16"}},
      precision);
    v({.name = "graphs", .help = "on a GPU, capture the step once and replay it"}, graphs);
    v({.name = "deterministic",
       .help = "the same bits on every run of one machine with one number of threads; never times anything"},
      deterministic);
    v({.name = "convolutions",
       .help = "convolutions.json of an earlier run: do them as they were chosen there",
       .placeholder = "FILE"},
      convolutions);
    v({.name = "run-dir",
       .help = "where to write results; without it a new folder in runs/",
       .placeholder = "DIR"},
      run_dir);
    v({.name = "device-memory",
       .help = "cap on what is allocated on the device, such as 20GiB; 0: none",
       .low = 0,
       .format = OptionFormat::kByteSize},
      device_memory);
  }
};

}  // namespace espalier::train
