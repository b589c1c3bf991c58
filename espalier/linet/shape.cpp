#include "espalier/linet/shape.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"

namespace espalier::linet {
namespace {

struct Preset {
  std::string_view name;
  BlockKind block;
  std::vector<int64_t> stages;
};

// He et al., "Deep residual learning for image recognition", arXiv 1512.03385, table 1.
const std::vector<Preset>& presets() {
  static const std::vector<Preset> all{{"li_resnet18", BlockKind::kBasic, {2, 2, 2, 2}},
                                       {"li_resnet34", BlockKind::kBasic, {3, 4, 6, 3}},
                                       {"li_resnet50", BlockKind::kBottleneck, {3, 4, 6, 3}},
                                       {"li_resnet101", BlockKind::kBottleneck, {3, 4, 23, 3}},
                                       {"li_resnet152", BlockKind::kBottleneck, {3, 8, 36, 3}}};
  return all;
}

}  // namespace

int64_t expansion(BlockKind kind) {
  return kind == BlockKind::kBottleneck ? 4 : 1;
}

const std::vector<std::string_view>& linet_presets() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> made;
    for (const Preset& preset : presets()) made.push_back(preset.name);
    return made;
  }();
  return names;
}

LinetShape linet_preset(std::string_view name, double width, LinetRules rules) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found == presets().end())
    fail_usage("model '{}': want one of {}", name, fmt::join(linet_presets(), ", "));
  LinetShape shape{.block = found->block, .stages = found->stages};
  const int64_t narrowest = shape.widths.front();
  for (int64_t& each : shape.widths) {
    const double scaled = static_cast<double>(each) * width;
    each = rules == LinetRules::kOriginal ? static_cast<int64_t>(scaled)
                                          : std::max<int64_t>(1, std::llround(scaled));
  }
  if (shape.widths.front() < 1)
    fail_usage("width {}: leaves no channel of the first stage's {}; want at least {}", width, narrowest,
               1.0 / static_cast<double>(narrowest));
  return shape;
}

void check_shape(const LinetShape& shape) {
  const auto above_zero = [](const std::vector<int64_t>& values) {
    return !values.empty() && std::ranges::all_of(values, [](int64_t value) { return value >= 1; });
  };
  if (!above_zero(shape.in_channels))
    fail_usage("linet: streams: want at least one, each of at least 1 channel, got [{}]",
               fmt::join(shape.in_channels, ", "));
  if (!above_zero(shape.stages) || !above_zero(shape.widths) || shape.stages.size() != shape.widths.size())
    fail_usage("linet: stages: want blocks and widths of at least 1 for each, got [{}] and [{}]",
               fmt::join(shape.stages, ", "), fmt::join(shape.widths, ", "));
  if (shape.num_classes < 1) fail_usage("linet: classes: want at least 1, got {}", shape.num_classes);
}

}  // namespace espalier::linet
