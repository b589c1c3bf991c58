// `espalier train host`: one small network trained from the gather iterator with SGD and momentum.
//
// Decisions use the validation split; the test split is read once, at the end, to report.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "espalier/core/options.h"
#include "espalier/core/progress.h"
#include "espalier/data/resident.h"
#include "espalier/data/sources/source.h"
#include "espalier/train/memory_plan.h"

namespace espalier::train {

struct HostJobOptions {
  data::SourceOptions source;
  data::ResidentOptions resident;
  std::string device = "auto";
  std::string field;
  int64_t epochs = 3;
  int64_t batch = 128;
  double learning_rate = 0.2;
  double momentum = 0.9;
  double weight_decay = 5e-4;
  int64_t crop_pad = 4;
  bool flip = true;
  uint64_t seed = 0;
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
    v({.name = "batch", .help = "samples a step", .low = 1, .high = 1 << 20}, batch);
    v({.name = "learning-rate",
       .help = "its peak; it rises over the first fifth, then falls to 0",
       .low = 0,
       .high = 100},
      learning_rate);
    v({.name = "momentum", .help = "of SGD", .low = 0, .high = 1}, momentum);
    v({.name = "weight-decay", .help = "of SGD", .low = 0, .high = 1}, weight_decay);
    v({.name = "crop-pad", .help = "pixels to pad on each side before a random crop", .low = 0, .high = 1024},
      crop_pad);
    v({.name = "flip", .help = "mirror half of the samples"}, flip);
    v({.name = "seed", .help = "of the weights, the order of samples and their augmentation"}, seed);
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

struct EpochRecord {
  int64_t epoch = 0;  // from 1
  double train_loss = 0;
  double train_accuracy = 0;
  double validation_loss = 0;
  double validation_accuracy = 0;
  double seconds = 0;
};

struct HostJobResult {
  double test_loss = 0;
  double test_accuracy = 0;
  double seconds = 0;
  std::filesystem::path run_dir;
};

// What the job tells while it runs. All may be empty.
struct HostJobEvents {
  Progress progress;
  std::function<void(const data::ResidentDataset&, const MemoryPlan&, const std::filesystem::path&)> started;
  std::function<void(const EpochRecord&)> epoch_done;
};

// What the job will take on its device.
MemoryPlan plan_host_job(const HostJobOptions& options, int64_t data_bytes, const data::FieldSpec& field);

HostJobResult run_host_job(const HostJobOptions& options, const HostJobEvents& events);

}  // namespace espalier::train
