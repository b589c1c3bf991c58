// The conditions of a policy's episodes, as the metadata of its file names them: it must meet them again for
// its choices to mean what it learned. Free of torch, as policy_header.h.
//
// Kept true: a file that was written before these were kept has none of them, and is compared in what it has.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "espalier/core/files/safetensors.h"

namespace espalier::train {

struct PolicyTerms {
  std::optional<std::vector<std::string>> blueprints;     // all, by number
  std::optional<std::vector<std::string>> host_slots;     // all, by action index
  std::optional<std::vector<std::string>> planted_slots;  // where seeds might be planted
  std::optional<int64_t> max_seeds;
  std::optional<double> parameter_budget;
  std::optional<std::string> gates;  // permissive or strict
  std::optional<int64_t> gate_training_steps;
  std::optional<double> gate_least_norm;
  std::optional<double> gate_largest_norm;
  // Strict gates alone ask for these.
  std::optional<double> gate_improvement;
  std::optional<double> gate_gradient_ratio;
  std::optional<double> gate_contribution;
  std::optional<int64_t> embargo;
  std::optional<int64_t> episode_length;
  std::optional<int64_t> batches_per_step;  // 0: a pass over the data
  std::optional<int64_t> validate_every;
  std::optional<int64_t> validation_parts;
  std::optional<int64_t> telemetry_every;  // 0: never

  bool operator==(const PolicyTerms&) const = default;
};

Metadata metadata_of(const PolicyTerms& terms);
// Fails, naming the file and the key, for a value that is none.
PolicyTerms policy_terms(const Metadata& metadata, const std::string& file);

}  // namespace espalier::train
