#include "espalier/train/control/policy_terms.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/text/metadata_numbers.h"
#include "espalier/core/text/utf8.h"

namespace espalier::train {
namespace {

constexpr const char* kBlueprints = "blueprints";
constexpr const char* kHostSlots = "host_slots";
constexpr const char* kPlantedSlots = "planted_slots";
constexpr const char* kMaxSeeds = "max_seeds";
constexpr const char* kParameterBudget = "parameter_budget";
constexpr const char* kGates = "gates";
constexpr const char* kGateTrainingSteps = "gate_training_steps";
constexpr const char* kGateLeastNorm = "gate_least_norm";
constexpr const char* kGateLargestNorm = "gate_largest_norm";
constexpr const char* kGateImprovement = "gate_improvement";
constexpr const char* kGateGradientRatio = "gate_gradient_ratio";
constexpr const char* kGateContribution = "gate_contribution";
constexpr const char* kEmbargo = "embargo";
constexpr const char* kEpisodeLength = "episode_length";
constexpr const char* kBatchesPerStep = "batches_per_step";
constexpr const char* kValidateEvery = "validate_every";
constexpr const char* kValidationParts = "validation_parts";
constexpr const char* kTelemetryEvery = "telemetry_every";
constexpr NumberRange kCounts{1, 1'000'000'000}, kCountsOrNone{0, 1'000'000'000};

const std::string* find(const Metadata& metadata, const char* key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

std::optional<std::vector<std::string>> names(const Metadata& metadata, const char* key,
                                              const std::string& file) {
  const std::string* const text = find(metadata, key);
  if (text == nullptr) return std::nullopt;
  std::vector<std::string> found;
  for (size_t begin = 0; begin <= text->size();) {
    const size_t end = std::min(text->find(',', begin), text->size());
    found.push_back(text->substr(begin, end - begin));
    if (found.back().empty())
      fail("'{}': metadata '{}': want names with commas between, got '{}'", file, key, on_one_line(*text));
    begin = end + 1;
  }
  return found;
}

std::optional<int64_t> count(const Metadata& metadata, const char* key, const std::string& file,
                             const NumberRange& range = kCounts) {
  if (find(metadata, key) == nullptr) return std::nullopt;
  return metadata_number(metadata, key, range, file);
}

enum class Sign { kAny, kPositive };

std::optional<double> number(const Metadata& metadata, const char* key, const std::string& file,
                             Sign sign = Sign::kAny) {
  const std::string* const text = find(metadata, key);
  if (text == nullptr) return std::nullopt;
  double value = 0;
  const auto [stop, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  const bool is_read = error == std::errc() && stop == text->data() + text->size() && std::isfinite(value);
  if (!is_read || (sign == Sign::kPositive && value <= 0))
    fail("'{}': metadata '{}': want a number{}, got '{}'", file, key,
         sign == Sign::kPositive ? " above 0" : "", on_one_line(*text));
  return value;
}

}  // namespace

Metadata metadata_of(const PolicyTerms& terms) {
  Metadata metadata;
  const auto put_names = [&](const char* key, const std::optional<std::vector<std::string>>& value) {
    if (value) metadata[key] = fmt::format("{}", fmt::join(*value, ","));
  };
  const auto put_number = [&](const char* key, const auto& value) {
    if (value) metadata[key] = fmt::format("{}", *value);
  };
  put_names(kBlueprints, terms.blueprints);
  put_names(kHostSlots, terms.host_slots);
  put_names(kPlantedSlots, terms.planted_slots);
  put_number(kMaxSeeds, terms.max_seeds);
  put_number(kParameterBudget, terms.parameter_budget);
  put_number(kGates, terms.gates);
  put_number(kGateTrainingSteps, terms.gate_training_steps);
  put_number(kGateLeastNorm, terms.gate_least_norm);
  put_number(kGateLargestNorm, terms.gate_largest_norm);
  put_number(kGateImprovement, terms.gate_improvement);
  put_number(kGateGradientRatio, terms.gate_gradient_ratio);
  put_number(kGateContribution, terms.gate_contribution);
  put_number(kEmbargo, terms.embargo);
  put_number(kEpisodeLength, terms.episode_length);
  put_number(kBatchesPerStep, terms.batches_per_step);
  put_number(kValidateEvery, terms.validate_every);
  put_number(kValidationParts, terms.validation_parts);
  put_number(kTelemetryEvery, terms.telemetry_every);
  return metadata;
}

PolicyTerms policy_terms(const Metadata& metadata, const std::string& file) {
  PolicyTerms terms{.blueprints = names(metadata, kBlueprints, file),
                    .host_slots = names(metadata, kHostSlots, file),
                    .planted_slots = names(metadata, kPlantedSlots, file),
                    .max_seeds = count(metadata, kMaxSeeds, file),
                    .parameter_budget = number(metadata, kParameterBudget, file, Sign::kPositive),
                    .gate_training_steps = count(metadata, kGateTrainingSteps, file, kCountsOrNone),
                    .gate_least_norm = number(metadata, kGateLeastNorm, file),
                    .gate_largest_norm = number(metadata, kGateLargestNorm, file),
                    .gate_improvement = number(metadata, kGateImprovement, file),
                    .gate_gradient_ratio = number(metadata, kGateGradientRatio, file),
                    .gate_contribution = number(metadata, kGateContribution, file),
                    .embargo = count(metadata, kEmbargo, file),
                    .episode_length = count(metadata, kEpisodeLength, file),
                    .batches_per_step = count(metadata, kBatchesPerStep, file, kCountsOrNone),
                    .validate_every = count(metadata, kValidateEvery, file),
                    .validation_parts = count(metadata, kValidationParts, file),
                    .telemetry_every = count(metadata, kTelemetryEvery, file, kCountsOrNone)};
  if (const std::string* const gates = find(metadata, kGates)) {
    if (*gates != "permissive" && *gates != "strict")
      fail("'{}': metadata '{}': want permissive or strict, got '{}'", file, kGates, on_one_line(*gates));
    terms.gates = *gates;
  }
  return terms;
}

}  // namespace espalier::train
