#include "espalier/train/deterministic_scope.h"

#include <ATen/Context.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/lanes/conv_choice.h"

namespace espalier::train {

DeterministicScope::DeterministicScope(bool wanted)
    : algorithms_(at::globalContext().deterministicAlgorithms()),
      fills_(at::globalContext().deterministicFillUninitializedMemory()),
      cudnn_(at::globalContext().deterministicCuDNN()),
      benchmark_(at::globalContext().benchmarkCuDNN()) {
  lanes::set_conv_choosing(wanted ? lanes::ConvChoosing::kFixed : lanes::ConvChoosing::kMeasure);
  if (!wanted) return;
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  // Filling every new tensor finds reads of what was never written; it is no part of being the same twice.
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

DeterministicScope::~DeterministicScope() {
  at::Context& context = at::globalContext();
  lanes::set_conv_choosing(lanes::ConvChoosing::kMeasure);
  context.setDeterministicAlgorithms(algorithms_, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(fills_);
  context.setDeterministicCuDNN(cudnn_);
  context.setBenchmarkCuDNN(benchmark_);
}

void repeat_convolutions(const std::string& path) {
  if (path.empty()) return;
  std::ifstream file(path);
  if (!file) fail_usage("--convolutions '{}': cannot be read: {}", path, std::strerror(errno));
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const auto is_text = [](const nlohmann::json& value) { return value.is_string(); };
  if (!json.is_object() || !std::ranges::all_of(json, is_text))
    fail_usage("--convolutions '{}': want the convolutions.json of a run: an object of strings", path);
  lanes::set_conv_choices(json.get<lanes::ConvChoices>());
}

}  // namespace espalier::train
