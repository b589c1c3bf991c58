#include "espalier/core/error.h"
#include "espalier/lanes/conv/choice.h"

#if ESPALIER_WITH_CUDA
#include "espalier/lanes/conv/choose.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>

#include <limits>
#include <mutex>

#include "espalier/lanes/conv/job.h"
#include "espalier/lanes/launch.h"
#endif

namespace espalier::lanes {

#if ESPALIER_WITH_CUDA
namespace {

constexpr int kMostPlans = 6;  // cuDNN's plans that are tried
constexpr int kTimings = 3;
constexpr int kRunsOfATiming = 4;

// One per device, for good: cuBLAS keeps a workspace of 32 MiB for every stream that it ever ran on.
c10::cuda::CUDAStream timing_stream(c10::DeviceIndex device) {
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;  // under the cache's mutex
  const auto found = streams.find(device);
  if (found != streams.end()) return found->second;
  return streams.emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device))
      .first->second;
}

// Microseconds of one run on the device, the best of a few. Replayed from a graph, as steps are: what the
// host takes to launch it is not what is chosen by.
double time_of(const ConvJob& job, const ConvWay& way) {
  const c10::DeviceIndex device = job.x.device().index();
  const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(device);
  const c10::cuda::CUDAStream side = timing_stream(device);
  caller.synchronize();
  const c10::cuda::CUDAStreamGuard guard(side);
  run(job, way);  // what is made at first use is made
  side.synchronize();
  at::cuda::CUDAGraph graph;
  // Other threads may wait for the device meanwhile: a checkpoint's writer does.
  graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < kRunsOfATiming; ++i) run(job, way);
  graph.capture_end();
  graph.replay();
  at::cuda::CUDAEvent began(cudaEventDefault), ended(cudaEventDefault);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimings; ++i) {
    began.record(side);
    graph.replay();
    ended.record(side);
    ended.synchronize();
    best = std::min(best, static_cast<double>(began.elapsed_time(ended)) * 1e3 / kRunsOfATiming);
  }
  return best;
}

struct ChoiceCache {
  std::recursive_mutex mutex;
  ConvChoosing choosing = ConvChoosing::kMeasure;
  std::map<std::string, ConvWay> made;
  ConvChoices recorded;
};

ChoiceCache& cache() {
  static auto& made = *new ChoiceCache;  // plans outlive CUDA otherwise
  return made;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

// Without measuring: our own, whose bits depend on the shape alone, else cuDNN's first.
ConvWay fixed_way(const ConvJob& job) {
  std::vector<ConvWay> ways = own_ways(job);
  if (ways.empty()) ways = cudnn_ways(job, 1);
  TORCH_CHECK(!ways.empty(), "lane_conv2d: cuDNN has no deterministic plan for ", key_of(job));
  return ways.front();
}

std::vector<ConvWay> all_ways(const ConvJob& job) {
  std::vector<ConvWay> ways = own_ways(job);
  for (ConvWay& way : cudnn_ways(job, kMostPlans)) ways.push_back(std::move(way));
  return ways;
}

ConvWay recorded_way(const ConvJob& job, const std::string& text) {
  for (ConvWay& way : all_ways(job))
    if (way.text(job.pass) == text) return way;
  return fixed_way(job);  // recorded on another device or by another cuDNN
}

ConvWay measured_way(const ConvJob& job) {
  std::vector<ConvWay> ways = all_ways(job);
  TORCH_CHECK(!ways.empty(), "lane_conv2d: cuDNN has no deterministic plan for ", key_of(job));
  size_t best = 0;
  double best_us = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < ways.size() && ways.size() > 1; ++i) {
    const double us = time_of(job, ways[i]);
    if (us < best_us) {
      best_us = us;
      best = i;
    }
  }
  return ways[best];
}

}  // namespace

ConvWay way_for(const ConvJob& job) {
  // Only the kernel of all lanes leaves out entries that are not there, and how many are is not known here.
  if (job.entries.defined() && !own_ways(job).empty()) return own_ways(job).front();
  ChoiceCache& all = cache();
  const std::string key = key_of(job);
  const auto found = all.made.find(key);
  if (found != all.made.end()) return found->second;
  const auto recorded = all.recorded.find(key);
  // fp32 and f64 are for exactness: their plans round differently, and cuDNN's first is what torch would
  // take.
  const bool may_measure =
      all.choosing == ConvChoosing::kMeasure && job.x.element_size() == 2 && !is_capturing(stream_of(job.x));
  const ConvWay way = recorded != all.recorded.end() ? recorded_way(job, recorded->second)
                      : may_measure                  ? measured_way(job)
                                                     : fixed_way(job);
  all.made.emplace(key, way);
  return way;
}

bool takes_conv_cuda(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         weight.size(3) == weight.size(4);
}

void conv_by_cuda(ConvPass pass, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out,
                  const at::Tensor& bias, const ConvGeometry& geometry, const at::Tensor& entries) {
  const c10::cuda::CUDAGuard guard(x.device());
  const ConvJob job{.pass = pass,
                    .x = pass == ConvPass::kData ? x : for_kernel(x),
                    .weight = pass == ConvPass::kWeight ? weight : for_kernel(weight),
                    .out = pass == ConvPass::kForward ? out : for_kernel(out),
                    .bias = bias,
                    .entries = entries,
                    .geometry = geometry};
  const std::lock_guard lock(cache().mutex);  // the branches, and one measurement at a time
  run(job, way_for(job));
}

void set_conv_choosing(ConvChoosing choosing) {
  const std::lock_guard lock(cache().mutex);
  cache().choosing = choosing;
}

ConvChoices conv_choices() {
  const std::lock_guard lock(cache().mutex);
  ConvChoices all = cache().recorded;
  for (const auto& [key, way] : cache().made)
    all[key] = way.text(key.starts_with("weight") ? ConvPass::kWeight : ConvPass::kForward);
  return all;
}

void set_conv_choices(const ConvChoices& choices) {
  for (const auto& [key, text] : choices)
    if (!is_conv_way(text))
      fail_usage("convolution choices: '{}' of '{}': want lanes, products, folded, or cudnn and a number",
                 text, key);
  const std::lock_guard lock(cache().mutex);
  cache().recorded = choices;
}
#else
void set_conv_choosing(ConvChoosing) {}
ConvChoices conv_choices() {
  return {};
}
void set_conv_choices(const ConvChoices&) {}
#endif

}  // namespace espalier::lanes