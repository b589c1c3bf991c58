#include "espalier/core/machine/device_name.h"

#include <charconv>

#include "espalier/core/error.h"

namespace espalier {

std::string DeviceName::text() const {
  return kind == Kind::kCpu ? "cpu" : fmt::format("cuda:{}", index);
}

DeviceName parse_device(std::string_view name, std::optional<int> num_cuda_devices) {
  if (name == "cpu") return {DeviceName::Kind::kCpu, 0};
  int index = 0;
  if (name != "cuda") {
    constexpr std::string_view kPrefix = "cuda:";
    const std::string_view digits = name.starts_with(kPrefix) ? name.substr(kPrefix.size()) : "";
    const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (digits.empty() || code != std::errc{} || end != digits.data() + digits.size() || index < 0)
      fail_usage("device '{}': want cpu, cuda or cuda:N", name);
  }
  if (num_cuda_devices && index >= *num_cuda_devices)
    fail_usage("device '{}': this machine has {} CUDA device(s); {}", name, *num_cuda_devices,
               *num_cuda_devices == 0 ? "use cpu, or see 'espalier doctor'"
                                      : fmt::format("use cuda:0 to cuda:{}", *num_cuda_devices - 1));
  return {DeviceName::Kind::kCuda, index};
}

}  // namespace espalier
