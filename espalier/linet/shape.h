// The shape of a multi-stream residual network: its streams, stages and blocks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/linet/rules.h"
#include "espalier/tensor/layout.h"

namespace espalier::linet {

enum class BlockKind { kBasic, kBottleneck };

// A bottleneck block gives four times its width.
int64_t expansion(BlockKind kind);

struct LinetShape {
  std::vector<int64_t> in_channels = {3};  // [S]: one per stream
  BlockKind block = BlockKind::kBasic;
  std::vector<int64_t> stages = {2, 2, 2, 2};  // blocks of each stage; all but the first halve the image
  std::vector<int64_t> widths = {64, 128, 256, 512};  // one per stage; the stem has the first
  int64_t num_classes = 10;
  MemoryFormat memory_format = MemoryFormat::kChannelsLast;
  uint64_t seed = 0;

  int64_t num_streams() const { return static_cast<int64_t>(in_channels.size()); }
  int64_t num_features() const { return widths.back() * expansion(block); }
};

// "li_resnet18", 34, 50, 101 or 152, with all widths times `width`. kOriginal: truncated, and refused where
// nothing would be left. kEspalier: rounded, and at least 1.
LinetShape linet_preset(std::string_view name, double width, LinetRules rules = LinetRules::kOriginal);
const std::vector<std::string_view>& linet_presets();

// Fails with one sentence where nothing could be built.
void check_shape(const LinetShape& shape);

}  // namespace espalier::linet
