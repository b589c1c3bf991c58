// What every training job is told, whatever it trains: the data, how long, where, and where results go.
#pragma once

#include <cstdint>
#include <string>

#include "espalier/core/options.h"
#include "espalier/data/resident.h"
#include "espalier/data/sources/source.h"
#include "espalier/train/run_options.h"

namespace espalier::train {

// Of jobs that train one network: it lives on one device.
template <class Visitor>
void visit_device(Visitor&& v, std::string& device) {
  v({.name = "device", .help = "where to train: cpu, cuda, cuda:N, or auto: a GPU where there is one"},
    device);
}

struct JobOptions : RunOptions {
  data::SourceOptions source;
  data::ResidentOptions resident;
  int64_t epochs = 12;
  int64_t batch = 512;
  int64_t crop_pad = 4;
  bool flip = true;
  uint64_t seed = 0;
  bool graphs = true;
  bool deterministic = false;
  std::string convolutions;
  int64_t device_memory = 0;

  template <class Visitor>
  void visit(Visitor&& v) {
    source.visit(v);
    resident.visit(v);
    v({.name = "epochs", .help = "passes over the training split", .low = 1, .high = 1e6}, epochs);
    v({.name = "batch", .help = "samples a lane and step", .low = 1, .high = 1 << 20}, batch);
    v({.name = "crop-pad", .help = "pixels to pad on each side before a random crop", .low = 0, .high = 1024},
      crop_pad);
    v({.name = "flip", .help = "mirror half of the samples"}, flip);
    v({.name = "seed", .help = "of weights, the order of samples, their augmentation, and random decisions"},
      seed);
    v({.name = "graphs", .help = "on a GPU, capture the step once and replay it"}, graphs);
    v({.name = "deterministic",
       .help = "the same bits on every run of one machine with one number of threads; never times anything"},
      deterministic);
    v({.name = "convolutions",
       .help = "convolutions.json of an earlier run: do them as they were chosen there",
       .placeholder = "FILE"},
      convolutions);
    RunOptions::visit(v);
    v({.name = "device-memory",
       .help = "cap on what is allocated on a device, such as 20GiB; 0: none",
       .low = 0,
       .format = OptionFormat::kByteSize},
      device_memory);
  }
};

}  // namespace espalier::train
