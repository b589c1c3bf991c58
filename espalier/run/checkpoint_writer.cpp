#include "espalier/run/checkpoint_writer.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "espalier/core/error.h"
#include "espalier/tensor/file.h"

namespace espalier::run {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point began) {
  return std::chrono::duration<double, std::milli>(Clock::now() - began).count();
}

// Behind what is queued on each device that the tensors are on.
std::vector<std::shared_ptr<c10::Event>> events_behind(
    const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::vector<c10::Device> devices;
  for (const auto& [name, tensor] : tensors)
    if (!tensor.device().is_cpu() && std::ranges::find(devices, tensor.device()) == devices.end())
      devices.push_back(tensor.device());
  std::vector<std::shared_ptr<c10::Event>> events;
  for (const c10::Device device : devices) {
    const c10::impl::VirtualGuardImpl guard(device.type());
    events.push_back(std::make_shared<c10::Event>(device.type()));
    events.back()->record(guard.getStream(device));
  }
  return events;
}

}  // namespace

CheckpointWriter::~CheckpointWriter() {
  wait();
}

bool CheckpointWriter::is_busy() const {
  return pending_.valid() && pending_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void CheckpointWriter::wait() {
  if (pending_.valid()) pending_.wait();
}

std::optional<SavedCheckpoint> CheckpointWriter::take_outcome() {
  if (!pending_.valid() || is_busy()) return std::nullopt;
  return pending_.get();
}

void CheckpointWriter::save(Request request) {
  const auto began = Clock::now();
  wait();
  // Wider types first, so that all are aligned.
  std::ranges::stable_sort(request.tensors, std::ranges::greater(), [](const auto& named) {
    return static_cast<int64_t>(named.second.element_size());
  });
  int64_t bytes = 0;
  bool is_on_gpu = false;
  for (const auto& [name, tensor] : request.tensors) {
    bytes += static_cast<int64_t>(tensor.nbytes());
    is_on_gpu = is_on_gpu || !tensor.device().is_cpu();
  }
  if (!buffer_.defined() || buffer_.numel() < bytes)
    buffer_ = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(is_on_gpu));
  const c10::NoGradGuard no_grad;
  std::vector<CheckpointTensor> tensors;
  int64_t offset = 0;
  for (const auto& [name, tensor] : request.tensors) {
    const auto length = static_cast<int64_t>(tensor.nbytes());
    // In the order of its axes, which is what a reader expects.
    const at::Tensor copy = buffer_.narrow(0, offset, length).view(tensor.scalar_type()).view(tensor.sizes());
    copy.copy_(tensor, /*non_blocking=*/true);
    tensors.push_back({{name, stored_type(name, tensor.scalar_type()), tensor.sizes().vec()},
                       std::as_bytes(std::span(static_cast<const char*>(copy.const_data_ptr()),
                                               static_cast<size_t>(length)))});
    offset += length;
  }
  SavedCheckpoint outcome{.name = request.name, .bytes = bytes};
  const auto events = events_behind(request.tensors);
  request.tensors.clear();
  outcome.stall_ms = request.waited_ms + ms_since(began);
  pending_ = std::async(std::launch::async, [this, outcome, events, request = std::move(request),
                                             tensors = std::move(tensors)]() mutable {
    const auto write_began = Clock::now();
    try {
      for (const auto& event : events) event->synchronize();
      if (request.before_write) request.before_write();
      folder_.write(request.name, tensors, std::move(request.manifest));
      if (request.after_write) request.after_write();
    } catch (const std::exception& error) {
      outcome.error = error.what();
    }
    outcome.write_seconds = ms_since(write_began) / 1e3;
    return outcome;
  });
}

}  // namespace espalier::run
