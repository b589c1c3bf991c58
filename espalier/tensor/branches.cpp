#include "espalier/tensor/branches.h"

#include <algorithm>
#if ESPALIER_WITH_CUDA
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>
#include <vector>

#include "espalier/tensor/wait_for.h"
#endif

namespace espalier {

#if ESPALIER_WITH_CUDA
namespace {

// The streams of a device's branches. They live as long as the process: what is cached for a stream stays
// right.
const std::vector<c10::cuda::CUDAStream>& streams_of(c10::DeviceIndex device) {
  static std::mutex mutex;
  static auto& all = *new std::map<c10::DeviceIndex, std::vector<c10::cuda::CUDAStream>>;
  const std::lock_guard lock(mutex);
  std::vector<c10::cuda::CUDAStream>& streams = all[device];
  while (std::ssize(streams) < Branches::kMost - 1)
    streams.push_back(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device));
  return streams;
}

}  // namespace

Branches::Branches(at::Device device, int64_t count)
    : device_(device), num_streams_(device.is_cuda() ? std::clamp<int64_t>(count, 1, kMost) - 1 : 0) {
  if (num_streams_ == 0) return;
  const auto caller = c10::cuda::getCurrentCUDAStream(device_.index());
  const auto& streams = streams_of(device_.index());
  for (int64_t i = 0; i < num_streams_; ++i) wait_for(streams[static_cast<size_t>(i)], caller);
}

void Branches::run(const at::Tensor& input, const std::function<void()>& body) {
  const int64_t branch = num_begun_++ % (num_streams_ + 1);
  if (branch == 0) return body();
  const c10::cuda::CUDAStream& stream = streams_of(device_.index())[static_cast<size_t>(branch - 1)];
  const c10::cuda::CUDAStreamGuard guard(stream);
  input.record_stream(stream);
  body();
}

void Branches::join() {
  if (num_streams_ == 0) return;
  const auto caller = c10::cuda::getCurrentCUDAStream(device_.index());
  const auto& streams = streams_of(device_.index());
  for (int64_t i = 0; i < num_streams_; ++i)  // also those that got nothing: all began behind the caller
    wait_for(caller, streams[static_cast<size_t>(i)]);
}

#else

Branches::Branches(at::Device device, int64_t) : device_(device), num_streams_(0) {}

void Branches::run(const at::Tensor&, const std::function<void()>& body) {
  body();
}

void Branches::join() {}

#endif

}  // namespace espalier
