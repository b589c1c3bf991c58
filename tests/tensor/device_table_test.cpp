#include "espalier/tensor/device_table.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "espalier/core/error.h"
#include "tests/support/cuda.h"
#include "tests/support/message.h"

namespace espalier {
namespace {

void fill_and_compare(at::Device device) {
  DeviceTable table(
      DeviceTable::bytes_of<float>(70) + DeviceTable::bytes_of<int64_t>(5) + DeviceTable::bytes_of<bool>(3),
      device);
  const auto floats = table.add<float>(70);
  const auto lanes = table.add<int64_t>(5);
  const auto flags = table.add<bool>(3);
  const void* at = lanes.device.data_ptr();
  for (const int64_t round : {1, 2}) {
    for (size_t i = 0; i < 70; ++i) floats.host[i] = static_cast<float>(i) * 0.5f * static_cast<float>(round);
    for (size_t i = 0; i < 5; ++i) lanes.host[i] = -round - static_cast<int64_t>(i);
    flags.host[1] = round == 1;
    table.upload();
    EXPECT_TRUE(at::equal(floats.device.cpu(), at::arange(70) * 0.5 * round));
    EXPECT_TRUE(at::equal(lanes.device.cpu(), -round - at::arange(5)));
    EXPECT_EQ(flags.device.cpu().sum().item<int64_t>(), round == 1 ? 1 : 0);
    EXPECT_EQ(lanes.device.data_ptr(), at);
  }
}

TEST(DeviceTable, BringsAllColumnsToTheDeviceAtFixedAddresses) {
  fill_and_compare(at::kCPU);
}

TEST(DeviceTableCuda, BringsAllColumnsToTheDeviceAtFixedAddresses) {
  ESPALIER_SKIP_WITHOUT_CUDA();
  fill_and_compare(at::kCUDA);
}

TEST(DeviceTable, RefusesAColumnThatDoesNotFit) {
  DeviceTable table(256, at::kCPU);
  table.add<bool>(256);
  EXPECT_ERROR(table.add<bool>(1), Error, "256 bytes more");
}

}  // namespace
}  // namespace espalier
