#include "espalier/grow/host/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "espalier/core/error.h"

namespace espalier::grow {
namespace {

// Past this a channel count no longer fits what a convolution can index, whatever the memory.
constexpr int64_t kMostChannels = int64_t{1} << 20;

void check_at_least(const char* what, int64_t value, int64_t least) {
  if (value < least) fail_usage("{}: want at least {}, got {}", what, least, value);
}

}  // namespace

int64_t num_pooled(const CnnHostOptions& options) {
  return options.pool_layers < 0 ? options.n_blocks : options.pool_layers;
}

void check_host(const CnnHostOptions& options) {
  check_at_least("lanes", options.lanes, 1);
  check_at_least("in_channels", options.in_channels, 1);
  check_at_least("height", options.height, 1);
  check_at_least("width", options.width, 1);
  check_at_least("num_classes", options.num_classes, 1);
  check_at_least("n_blocks", options.n_blocks, 2);
  check_at_least("base_channels", options.base_channels, 1);
  check_at_least("pool_layers", options.pool_layers, -1);
  if (!options.lane_ids.empty() && std::ssize(options.lane_ids) != options.lanes)
    fail_usage("lane_ids: want one for each of the {} lanes, got {}", options.lanes, options.lane_ids.size());
  if (options.n_blocks > 20 || options.base_channels > kMostChannels >> (options.n_blocks - 1))
    fail_usage("base_channels: want at most {} channels in the last block, got {} doubled {} times",
               kMostChannels, options.base_channels, options.n_blocks - 1);
  if (options.pool_layers > options.n_blocks)
    fail_usage("pool_layers: want at most the {} blocks, got {}", options.n_blocks, options.pool_layers);
  if (options.kernel_size < 1 || options.kernel_size % 2 == 0)
    fail_usage("kernel_size: want an odd number, got {}", options.kernel_size);
  int64_t height = options.height, width = options.width;
  for (int64_t pooled = 0; pooled < num_pooled(options); ++pooled) {
    if (height < 2 || width < 2)
      fail_usage(
          "pool_layers: {} halvings would shrink {} x {} pixels below 1 x 1; want at most {}: larger images, "
          "or a --host of fewer blocks",
          num_pooled(options), options.height, options.width, pooled);
    height /= 2;
    width /= 2;
  }
}

void check_training(const CnnHostOptions& options, int64_t batch, std::string_view flag) {
  for (const SlotSpec& slot : slots_by_execution(options))
    if (slot.row == 0 && batch * slot.height * slot.width == 1)
      fail_usage(
          "{} {}: the norm of block{} would see a single value per channel, which cannot be trained on: its "
          "images are 1 x 1; use at least 2, fewer pool_layers or larger images",
          flag, batch, slot.column);
}

std::vector<SlotSpec> slots_by_execution(const CnnHostOptions& options) {
  check_host(options);
  std::vector<SlotSpec> slots;
  int64_t height = options.height, width = options.width;
  for (int64_t block = 0; block < options.n_blocks; ++block) {
    const int64_t channels = options.base_channels << block;
    slots.push_back({fmt::format("r0c{}", block), 0, block, channels, height, width});
    if (block >= num_pooled(options)) continue;
    height /= 2;
    width /= 2;
    slots.push_back({fmt::format("r1c{}", block), 1, block, channels, height, width});
  }
  return slots;
}

std::vector<SlotSpec> slots_by_action(const CnnHostOptions& options) {
  const std::vector<SlotSpec> executed = slots_by_execution(options);
  std::vector<SlotSpec> slots;
  for (const int64_t row : {0, 1})
    for (const SlotSpec& slot : executed)
      if (slot.row == row) slots.push_back(slot);
  return slots;
}

int64_t num_parameters(const CnnHostOptions& options) {
  int64_t count = 0, channels = options.in_channels;
  for (int64_t block = 0; block < options.n_blocks; ++block) {
    const int64_t filters = options.base_channels << block;
    count += filters * channels * options.kernel_size * options.kernel_size + 2 * filters;
    channels = filters;
  }
  return count + options.num_classes * (channels + 1);
}

CnnHostOptions CnnHostOptions::in(const HostFrame& frame) const {
  CnnHostOptions framed = *this;
  framed.lanes = frame.lanes;
  framed.in_channels = frame.in_channels;
  framed.height = frame.height;
  framed.width = frame.width;
  framed.num_classes = frame.num_classes;
  framed.memory_format = frame.memory_format;
  framed.seed = frame.seed;
  framed.lane_ids = frame.lane_ids;
  return framed;
}

}  // namespace espalier::grow
