// Devices as torch knows them: from the names that people write, and the stream that a thread works on.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include <optional>
#include <string>

#include "espalier/core/machine/device_name.h"

namespace espalier {

// The device that is asked for; where none is, the first GPU, or the CPU where there is none. Fails for a GPU
// this machine does not have.
DeviceName choose_device(const std::optional<DeviceName>& wanted);
// The same for a user's text: auto, or a device's name.
DeviceName choose_device(const std::string& text);

// The torch device of a name; fails for a GPU this machine does not have.
c10::Device torch_device(const DeviceName& name);
// The same without looking for it: for plans, which may be made for another machine.
c10::Device planned_device(const DeviceName& name);
int num_cuda_devices();

// The stream on which this thread works on a device; on the CPU a name without meaning.
c10::Stream current_stream(c10::Device device);

}  // namespace espalier
