// `espalier predict`: what grown networks say about images.
//
// Kept true: images are normalised by the mean and deviation that the networks were trained with, not by
// their own; they come in the order of the source. An ensemble's probabilities are the mean of its networks'.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/machine/device_name.h"
#include "espalier/core/progress.h"
#include "espalier/data/sources/source.h"
#include "espalier/jobs/saved/networks.h"
#include "espalier/train/job_config.h"

namespace espalier::jobs {

// Where data has both; images without labels are all taken.
enum class PredictedSplit : uint8_t { kTest, kTrain };

struct PredictConfig {
  std::string from;      // as saved_networks() takes it
  LaneChoice lane;       // one of them
  int64_t ensemble = 0;  // the best so many of them together; 0: the one that `lane` chooses
  CheckpointChoice checkpoint = CheckpointChoice::kNewest;
  data::SourceConfig source;
  PredictedSplit split = PredictedSplit::kTest;
  int64_t batch = 256;
  std::optional<DeviceName> device;  // none: a GPU where there is one
  train::Precision precision = train::Precision::kFp32;
};

struct Predictions {
  std::vector<grow::NetworkDescription> networks;  // best first
  std::vector<std::string> classes;
  at::Tensor logits;               // [N,K] f32 cpu; undefined for an ensemble
  at::Tensor probabilities;        // [N,K] f32 cpu
  at::Tensor chosen;               // [N] i64 cpu: the likeliest class
  std::vector<int64_t> labels;     // [N]; empty: the data has none
  std::vector<std::string> files;  // [N]; empty: the data is not one file per image
  std::vector<data::BadSample> skipped;

  int64_t num_samples() const { return probabilities.size(0); }
  std::optional<double> accuracy() const;  // where there are labels
  // One sample as a line of JSON: {"sample": 0, "class": 3, "label": "cat", "probability": ...,
  // "probabilities": [...]} with "file" and "true_class" where they are known.
  nlohmann::ordered_json line(int64_t sample) const;
  // The tensors above; class names and, where there are any, files in the metadata as JSON.
  void write_tensors(const std::string& path) const;
};

Predictions predict(const PredictConfig& config, const Progress& progress);

}  // namespace espalier::jobs
