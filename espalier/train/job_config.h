// The options of every training job, whatever it trains: the data, how long, in what precision, by which
// algorithms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/data/resident.h"
#include "espalier/data/sources/source.h"

namespace espalier::train {

// What is computed in; weights stay fp32. kAuto: bf16 on a GPU, fp32 on the CPU.
enum class Precision : uint8_t { kAuto, kFp32, kBf16, kFp16 };
// As people write them.
inline std::vector<std::pair<std::string_view, Precision>> precision_names() {
  return {{"auto", Precision::kAuto},
          {"fp32", Precision::kFp32},
          {"bf16", Precision::kBf16},
          {"fp16", Precision::kFp16}};
}

struct JobConfig {
  data::SourceConfig source;
  data::ResidentConfig resident;
  int64_t epochs = 12;  // passes over the training split
  int64_t batch = 512;  // samples per lane and step
  int64_t crop_pad = 4;
  bool flip = true;
  uint64_t seed = 0;
  Precision precision = Precision::kAuto;
  bool graphs = true;  // on a GPU, a step is captured once and replayed
  bool deterministic = false;
  std::string convolutions;   // convolutions.json of an earlier run, to do them alike; empty: they are timed
  int64_t threads = 0;        // that an operator uses on the CPU; 0: as torch chooses
  int64_t device_memory = 0;  // cap on what is allocated on a device; 0: none
};

}  // namespace espalier::train
