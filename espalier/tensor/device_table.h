// Small tables that the host writes between epochs and kernels read: one block here, one on the device, one
// copy between them.
//
// Kept true: a column's device tensor stays where it is, so a captured step reads what was uploaded last; an
// upload is queued behind what the device still reads, and the host may write on at once.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace espalier {

class DeviceTable {
 public:
  template <class T>
  struct Column {
    std::span<T> host;  // [n]
    at::Tensor device;  // [n]
  };

  DeviceTable(int64_t bytes, at::Device device);
  DeviceTable(const DeviceTable&) = delete;
  DeviceTable& operator=(const DeviceTable&) = delete;

  // Zeros until the first upload. T: bool, uint8_t, int64_t or float.
  template <class T>
  Column<T> add(int64_t count);

  // What a column takes of the block.
  template <class T>
  static int64_t bytes_of(int64_t count) {
    return (count * static_cast<int64_t>(sizeof(T)) + kColumnBytes - 1) / kColumnBytes * kColumnBytes;
  }

  // Waits only where the upload before is still under way.
  void upload();

 private:
  static constexpr int64_t kColumnBytes = 256;  // every column starts on its own line

  int64_t take(int64_t bytes);

  at::Tensor host_;                    // [bytes] u8
  at::Tensor device_;                  // [bytes] u8
  at::Tensor staged_;                  // [bytes] u8 pinned: what is being uploaded; undefined on the CPU
  std::optional<c10::Event> is_read_;  // when staged_ has been read; none on the CPU
  int64_t used_ = 0;
};

}  // namespace espalier
