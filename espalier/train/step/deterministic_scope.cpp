#include "espalier/train/step/deterministic_scope.h"

#include <ATen/Context.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "espalier/core/error.h"
#include "espalier/lanes/conv/choice.h"

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
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_usage("--convolutions '{}': cannot be read: {}", path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  lanes::set_conv_choices(lanes::parse_conv_choices(text.str(), fmt::format("--convolutions '{}'", path)));
}

}  // namespace espalier::train
