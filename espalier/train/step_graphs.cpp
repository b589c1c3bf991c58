#include "espalier/train/step_graphs.h"

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
#if ESPALIER_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#endif

namespace espalier::train {

#if ESPALIER_WITH_CUDA

class GraphPool {
 public:
  explicit GraphPool(at::Device device)
      : id(at::cuda::graph_pool_handle()),
        stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  const at::cuda::MempoolId_t id;
  const c10::cuda::CUDAStream stream;  // that everything is captured on
};

struct StepGraphs::Captured {
  std::string key;
  std::unique_ptr<at::cuda::CUDAGraph> graph;
};

namespace {

void wait_for(const c10::cuda::CUDAStream& waiting, const c10::cuda::CUDAStream& earlier) {
  at::cuda::CUDAEvent event;
  event.record(earlier);
  event.block(waiting);
}

}  // namespace

StepGraphs::StepGraphs(const Options& options) : options_(options) {
  if (options_.capacity < 1) fail_usage("graphs: want room for at least 1, got {}", options_.capacity);
  if (!options_.device.is_cuda()) options_.graphs = Graphs::kOff;
  if (options_.graphs == Graphs::kOn && !options_.pool)
    options_.pool = std::make_shared<GraphPool>(options_.device);
}

void StepGraphs::run(const std::string& key, const std::function<void()>& body,
                     const std::function<std::vector<at::Tensor>()>& state) {
  if (options_.graphs == Graphs::kOff) return body();
  const auto found = std::ranges::find(kept_, key, &Captured::key);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
  } else {
    capture(key, body, state());
  }
  kept_.front().graph->replay();
}

void StepGraphs::capture(const std::string& key, const std::function<void()>& body,
                         const std::vector<at::Tensor>& state) {
  const auto began = std::chrono::steady_clock::now();
  while (std::ssize(kept_) >= options_.capacity) kept_.pop_back();
  const c10::cuda::CUDAGuard device(options_.device);
  const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(options_.device.index());
  const c10::cuda::CUDAStream side = options_.pool->stream;
  Captured captured{.key = key, .graph = std::make_unique<at::cuda::CUDAGraph>()};
  wait_for(side, caller);
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    std::vector<at::Tensor> saved;
    for (const at::Tensor& tensor : state) saved.push_back(tensor.detach().clone());
    body();  // what cuDNN and cuBLAS make at first use, plans and workspaces, must not be made while
             // capturing
    for (size_t i = 0; i < state.size(); ++i) state[i].detach().copy_(saved[i]);
    saved.clear();
    side.synchronize();
    captured.graph->capture_begin(options_.pool->id);
    try {
      body();
    } catch (...) {
      try {
        captured.graph->capture_end();  // the stream must not stay in capture
      } catch (...) {                   // what broke it is told below
      }
      throw;
    }
    captured.graph->capture_end();
  }
  wait_for(caller, side);
  kept_.push_front(std::move(captured));
  num_captures_ += 1;
  capture_seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

#else

class GraphPool {};

struct StepGraphs::Captured {};

StepGraphs::StepGraphs(const Options& options) : options_(options) {
  options_.graphs = Graphs::kOff;
}

void StepGraphs::run(const std::string&, const std::function<void()>& body,
                     const std::function<std::vector<at::Tensor>()>&) {
  body();
}

#endif

StepGraphs::~StepGraphs() = default;

void StepGraphs::clear() {
  kept_.clear();
}

}  // namespace espalier::train
