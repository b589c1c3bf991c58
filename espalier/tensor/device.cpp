#include "espalier/tensor/device.h"

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace espalier {

int num_cuda_devices() {
#if ESPALIER_WITH_CUDA
  return at::globalContext().hasCUDA() ? static_cast<int>(at::detail::getCUDAHooks().deviceCount()) : 0;
#else
  return 0;
#endif
}

DeviceName choose_device(const std::optional<DeviceName>& wanted) {
  if (!wanted) return parse_device(num_cuda_devices() > 0 ? "cuda:0" : "cpu");
  return parse_device(wanted->text(), num_cuda_devices());
}

DeviceName choose_device(const std::string& text) {
  return choose_device(text == "auto" ? std::nullopt : std::optional(parse_device(text)));
}

c10::Device planned_device(const DeviceName& name) {
  if (name.kind == DeviceName::Kind::kCpu) return c10::kCPU;
  return {c10::kCUDA, static_cast<c10::DeviceIndex>(name.index)};
}

c10::Device torch_device(const DeviceName& name) {
  parse_device(name.text(), num_cuda_devices());  // fails for one that is not there
  return planned_device(name);
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace espalier
