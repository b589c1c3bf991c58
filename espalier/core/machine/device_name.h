// Names of devices as users write them: cpu, cuda, cuda:N. Pure text: a plan over devices can be made and
// tested on a machine that has none of them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace espalier {

struct DeviceName {
  enum class Kind { kCpu, kCuda };
  Kind kind = Kind::kCpu;
  int index =
      0;  // 0, 0, N for cpu, cuda, cuda:N: the stable index, from which a device's order of samples comes

  std::string text() const;  // "cpu", "cuda:N": never plain "cuda", so that equal devices have equal texts
  bool operator==(const DeviceName&) const = default;
};

// Fails (UsageError) for any other name, and, where the number of GPUs is given, for one the machine does not
// have.
DeviceName parse_device(std::string_view name, std::optional<int> num_cuda_devices = std::nullopt);

}  // namespace espalier
