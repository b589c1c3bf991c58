#include "bench/host_floor.h"

#include <array>

namespace espalier::bench {
namespace {

// One block over all lanes and samples.
struct BlockWork {
  double x_bytes, y_bytes;  // the convolution's input and output; what is pooled is a quarter of y
  double flops;             // of one pass of the convolution
};

std::array<BlockWork, 3> blocks_of(const HostSize& size, int64_t bytes_a_value) {
  int64_t side = 32, channels = 3, filters = size.base;
  std::array<BlockWork, 3> blocks{};
  for (BlockWork& block : blocks) {
    const auto pixels = static_cast<double>(size.lanes * size.samples * side * side);
    block = {.x_bytes = pixels * static_cast<double>(channels * bytes_a_value),
             .y_bytes = pixels * static_cast<double>(filters * bytes_a_value),
             .flops = 2 * 9 * pixels * static_cast<double>(channels * filters)};
    side /= 2, channels = filters, filters *= 2;
  }
  return blocks;
}

}  // namespace

double step_floor_us(const HostSize& size, int64_t bytes_a_value, const MachineRates& rates) {
  double floor = 0;
  int passes = 2;  // nobody asks for the gradient of the images
  for (const BlockWork& block : blocks_of(size, bytes_a_value)) {
    floor += passes * rates.floor_us(block.x_bytes + block.y_bytes, block.flops) +
             rates.floor_us(5 * block.y_bytes + 3 * block.y_bytes / 4, 0);
    passes = 3;
  }
  return floor;
}

double scoring_floor_us(const HostSize& size, int64_t bytes_a_value, const MachineRates& rates) {
  double floor = 0;
  for (const BlockWork& block : blocks_of(size, bytes_a_value))
    floor += rates.floor_us(block.x_bytes + block.y_bytes, block.flops) +
             rates.floor_us(block.y_bytes + block.y_bytes / 4, 0);
  return floor;
}

}  // namespace espalier::bench
