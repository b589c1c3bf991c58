#include "espalier/tensor/captured_graphs.h"

#include <algorithm>
#include <chrono>

#include "espalier/core/error.h"
#if ESPALIER_WITH_CUDA
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "espalier/tensor/wait_for.h"
#endif

namespace espalier {

GraphWork& GraphWork::operator+=(const GraphWork& other) {
  captures += other.captures;
  capture_seconds += other.capture_seconds;
  eager += other.eager;
  return *this;
}

GraphWork& GraphWork::operator-=(const GraphWork& other) {
  return *this += {-other.captures, -other.capture_seconds, -other.eager};
}

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

// Keys counted at a time: a bound for runs that meet new ones for days. Beyond it all start over.
constexpr size_t kMostSeen = 4096;

}  // namespace

StepGraphs::StepGraphs(const Options& options) : options_(options) {
  if (options_.capacity < 1) fail_usage("graphs: want room for at least 1, got {}", options_.capacity);
  if (options_.eager_runs < 1)
    fail_usage("graphs: want at least 1 eager run before a capture, got {}", options_.eager_runs);
  if (!options_.device.is_cuda()) options_.graphs = Graphs::kOff;
  if (options_.graphs == Graphs::kOn && !options_.pool)
    options_.pool = std::make_shared<GraphPool>(options_.device);
}

void StepGraphs::run(const std::string& key, const std::function<void()>& body) {
  if (options_.graphs == Graphs::kOff) return body();
  const auto found = std::ranges::find(kept_, key, &Captured::key);
  if (found != kept_.end()) {
    kept_.splice(kept_.begin(), kept_, found);
  } else if (is_due(key)) {
    capture(key, body);
  } else {
    return run_eagerly(body);
  }
  kept_.front().graph->replay();
}

// Counts the use; a key that is due is forgotten, as it will have a graph.
bool StepGraphs::is_due(const std::string& key) {
  if (seen_.size() > kMostSeen) seen_.clear();
  const auto place = seen_.try_emplace(key, 0).first;
  if (place->second++ < options_.eager_runs) return false;
  seen_.erase(place);
  return true;
}

// On the stream of captures, as workspaces belong to a stream.
void StepGraphs::run_eagerly(const std::function<void()>& body) {
  const c10::cuda::CUDAGuard device(options_.device);
  const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(options_.device.index());
  const c10::cuda::CUDAStream side = options_.pool->stream;
  wait_for(side, caller);
  {
    const c10::cuda::CUDAStreamGuard guard(side);
    body();
  }
  wait_for(caller, side);
  work_.eager += 1;
}

void StepGraphs::capture(const std::string& key, const std::function<void()>& body) {
  const auto began = std::chrono::steady_clock::now();
  while (std::ssize(kept_) >= options_.capacity) kept_.pop_back();
  Captured captured{.key = key, .graph = std::make_unique<at::cuda::CUDAGraph>()};
  {
    const c10::cuda::CUDAGuard device(options_.device);
    const c10::cuda::CUDAStreamGuard guard(options_.pool->stream);
    // Other threads may wait for the device meanwhile: a checkpoint's writer does.
    captured.graph->capture_begin(options_.pool->id, cudaStreamCaptureModeThreadLocal);
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
  kept_.push_front(std::move(captured));
  work_.captures += 1;
  work_.capture_seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

#else

class GraphPool {};

struct StepGraphs::Captured {};

StepGraphs::StepGraphs(const Options& options) : options_(options) {
  options_.graphs = Graphs::kOff;
}

void StepGraphs::run(const std::string&, const std::function<void()>& body) {
  body();
}

#endif

StepGraphs::~StepGraphs() = default;

}  // namespace espalier
