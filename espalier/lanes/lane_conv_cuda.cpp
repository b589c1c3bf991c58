#include "espalier/core/error.h"
#include "espalier/lanes/conv_choice.h"

#if ESPALIER_WITH_CUDA
#include "espalier/lanes/lane_conv_cuda.h"

#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>

#include <limits>
#include <mutex>

#include "espalier/lanes/conv_fold.h"
#include "espalier/lanes/lane_conv_kernel.h"
#include "espalier/lanes/lane_launch.h"
#endif

namespace espalier::lanes {

#if ESPALIER_WITH_CUDA
namespace {

constexpr int kMostPlans = 6;                         // of cuDNN that are tried
constexpr int64_t kMostWorkspaceBytes = 256LL << 20;  // a branch
constexpr int kTimings = 3;
constexpr int kRunsOfATiming = 4;

// One pass of one convolution, its tensors as kernels want them.
struct Job {
  ConvPass pass = ConvPass::kForward;
  at::Tensor x, weight, out;  // [L,...]; the one that is written is the caller's own
  at::Tensor bias;
  at::Tensor entries;
  ConvGeometry geometry;
};

// How a job is done.
struct Choice {
  enum class By { kLanes, kProducts, kFolded, kCudnn };
  By by = By::kLanes;
  std::shared_ptr<CudnnPlan> plan;       // of kCudnn
  KernelType result = KernelType::kF32;  // what the plan writes

  // "cudnn 3 narrow": a weight's gradient that is written in x's type, and widened.
  std::string text(ConvPass pass) const {
    if (by == By::kLanes) return "lanes";
    if (by == By::kProducts) return "products";
    if (by == By::kFolded) return "folded";
    const bool is_narrow =
        pass == ConvPass::kWeight && result != KernelType::kF32 && result != KernelType::kF64;
    return fmt::format("cudnn {}{}", plan->place(), is_narrow ? " narrow" : "");
  }
};

const char* name_of(ConvPass pass) {
  return pass == ConvPass::kForward ? "forward" : pass == ConvPass::kData ? "data" : "weight";
}

std::string key_of(const Job& job) {
  return fmt::format("{} {}x{}x{}x{}x{} {} filters {}x{} stride {} padding {} groups {} {}",
                     name_of(job.pass), job.x.size(0), job.x.size(1), job.x.size(2), job.x.size(3),
                     job.x.size(4), job.weight.size(1), job.weight.size(3), job.weight.size(4),
                     job.geometry.stride, job.geometry.padding, job.geometry.groups,
                     c10::toString(job.x.scalar_type()));
}

// A job's sizes as kernels count them: in 32 bits.
std::optional<ConvSizes> kernel_sizes(const Job& job) {
  const at::Tensor &x = job.x, &out = job.out;
  if ((x.scalar_type() != at::kBFloat16 && x.scalar_type() != at::kHalf) || job.geometry.groups != 1)
    return std::nullopt;
  const int64_t pixels = x.size(1) * std::max(x.size(3) * x.size(4), out.size(3) * out.size(4));
  if (pixels * std::max(x.size(2), out.size(2)) >= int64_t{1} << 31) return std::nullopt;
  const auto size = [](const at::Tensor& tensor, int64_t axis) {
    return static_cast<int32_t>(tensor.size(axis));
  };
  return ConvSizes{.lanes = size(x, 0),
                   .batch = size(x, 1),
                   .channels = size(x, 2),
                   .height = size(x, 3),
                   .width = size(x, 4),
                   .filters = size(job.weight, 1),
                   .out_height = size(out, 3),
                   .out_width = size(out, 4),
                   .kernel = size(job.weight, 3),
                   .stride = static_cast<int32_t>(job.geometry.stride),
                   .padding = static_cast<int32_t>(job.geometry.padding)};
}

// The kernel of all lanes, where it takes the job.
std::optional<ConvArgs> kernel_args(const Job& job) {
  const at::Tensor &x = job.x, &out = job.out;
  const std::optional<ConvSizes> sizes = kernel_sizes(job);
  if (!sizes) return std::nullopt;
  ConvArgs args;
  args.sizes = *sizes;
  if (!takes_vector(args.sizes) && (job.pass == ConvPass::kData || !takes_narrow(args.sizes)))
    return std::nullopt;
  args.type = kernel_type(x);
  args.entries = entries_of(job.entries);
  args.x = stack_of(x);
  args.out = stack_of(out);
  return args;
}

void run_kernel(const Job& job, ConvArgs args) {
  const cudaStream_t stream = stream_of(job.x);
  if (job.pass != ConvPass::kWeight) {
    args.weight = stack_of(job.weight);
    const at::Tensor bias = job.bias.defined() ? as_wide(job.bias, at::kFloat) : at::Tensor();
    if (bias.defined()) {
      args.bias = bias.const_data_ptr<float>();
      args.bias_stride = bias.stride(0);
    }
    C10_CUDA_CHECK(job.pass == ConvPass::kForward ? launch_conv_forward(args, stream)
                                                  : launch_conv_backward_data(args, stream));
    return;
  }
  const auto options = job.x.options().dtype(at::kFloat);
  const bool is_wide = job.weight.scalar_type() == at::kFloat;
  const at::Tensor to = is_wide ? job.weight : empty_lanes(job.weight.sizes(), options);
  const at::Tensor partial = at::empty({conv_weight_partials(args.sizes)}, options);
  args.of_weight = to.mutable_data_ptr<float>();
  args.of_weight_stride = to.stride(0);
  args.partial = partial.mutable_data_ptr<float>();
  C10_CUDA_CHECK(launch_conv_backward_weight(args, stream));
  if (!is_wide) job.weight.copy_(to);
}

CudnnProblem problem_of(const Job& job, KernelType result) {
  return {.pass = job.pass,
          .batch = job.x.size(1),
          .channels = job.x.size(2),
          .height = job.x.size(3),
          .width = job.x.size(4),
          .filters = job.weight.size(1),
          .out_height = job.out.size(3),
          .out_width = job.out.size(4),
          .kernel = job.weight.size(3),
          .stride = job.geometry.stride,
          .padding = job.geometry.padding,
          .groups = job.geometry.groups,
          .type = kernel_type(job.x),
          .result = result};
}

void run_cudnn(const Job& job, const Choice& choice) {
  // The weight's gradient comes in the type that the plan writes.
  const at::ScalarType written = choice.result == kernel_type(job.x) ? job.x.scalar_type() : at::kFloat;
  const bool is_own = job.pass != ConvPass::kWeight || job.weight.scalar_type() == written;
  const at::Tensor weight =
      is_own ? job.weight : empty_lanes(job.weight.sizes(), job.weight.options().dtype(written));
  const int64_t bytes = (choice.plan->workspace_bytes() + 255) / 256 * 256;
  const at::Tensor workspace =
      at::empty({CudnnBranches::kBranches * bytes}, job.x.options().dtype(at::kByte));
  CudnnBranches& branches = CudnnBranches::of_device(job.x.device().index());
  const cudaStream_t stream = stream_of(job.x);
  const auto at_lane = [](const at::Tensor& tensor, int64_t lane) {
    return tensor.select(0, lane).data_ptr();
  };
  branches.fork(stream);
  for (int64_t lane = 0; lane < job.x.size(0); ++lane) {
    const int branch = static_cast<int>(lane % CudnnBranches::kBranches);
    branches.run(branch, *choice.plan, at_lane(job.x, lane), at_lane(weight, lane), at_lane(job.out, lane),
                 static_cast<uint8_t*>(workspace.data_ptr()) + branch * bytes);
  }
  branches.join(stream);
  if (!is_own && job.weight.scalar_type() == at::kFloat) {
    C10_CUDA_CHECK(launch_widen_weight(kernel_type(weight), static_cast<int>(weight.size(0)),
                                       static_cast<int>(weight.numel() / weight.size(0)), stack_of(weight),
                                       job.weight.mutable_data_ptr<float>(), job.weight.stride(0), stream));
  } else if (!is_own) {
    job.weight.copy_(weight);
  }
  if (job.pass == ConvPass::kForward && job.bias.defined())
    job.out.add_(job.bias.to(job.out.scalar_type()).view({job.out.size(0), 1, job.out.size(2), 1, 1}));
}

// A convolution of single pixels, none skipped, is a matrix product a lane.
bool is_product(const Job& job) {
  return job.weight.size(3) == 1 && job.geometry.stride == 1 && job.geometry.padding == 0 &&
         job.geometry.groups == 1 && !job.bias.defined() && !job.entries.defined();
}

// A lane [B,C,H,W] as rows of channels, one a pixel: [B*H*W,C], a view.
at::Tensor rows_of(const at::Tensor& stacked, int64_t lane) {
  return stacked.select(0, lane).permute({0, 2, 3, 1}).view({-1, stacked.size(2)});
}

void run_products(const Job& job) {
  for (int64_t lane = 0; lane < job.x.size(0); ++lane) {
    at::Tensor x = rows_of(job.x, lane), out = rows_of(job.out, lane);
    at::Tensor weight = job.weight.select(0, lane).flatten(1);  // [K,C]
    switch (job.pass) {
      case ConvPass::kForward:
        at::mm_out(out, x, weight.t());
        break;
      case ConvPass::kData:
        at::mm_out(x, out, weight);
        break;
      case ConvPass::kWeight:
        at::mm_out(weight, out.t(), x, weight.scalar_type());
        break;
    }
  }
}

// How the job is folded, where that is possible.
std::optional<ConvFold> fold_of(const Job& job) {
  const std::optional<ConvSizes> sizes = kernel_sizes(job);
  if (job.pass == ConvPass::kData || !sizes || !takes_fold(*sizes)) return std::nullopt;
  return fold_of(*sizes);
}

Choice choice_for(const Job& job);
void run(const Job& job, const Choice& choice);

void run_folded(const Job& job, const ConvFold& fold) {
  const cudaStream_t stream = stream_of(job.x);
  const ConvSizes& sizes = fold.sizes;
  Job inner = job;
  inner.geometry = {};
  inner.x =
      empty_lanes({sizes.lanes, sizes.batch, sizes.channels, sizes.height, sizes.width}, job.x.options());
  inner.weight = empty_lanes({sizes.lanes, sizes.filters, sizes.channels, sizes.kernel, sizes.kernel},
                             job.weight.options());
  C10_CUDA_CHECK(launch_fold_images(fold, stack_of(job.x), stack_of(inner.x), stream));
  const KernelType type = kernel_type(job.weight);
  if (job.pass == ConvPass::kForward)
    C10_CUDA_CHECK(launch_fold_weight(fold, type, stack_of(job.weight), stack_of(inner.weight), stream));
  run(inner, choice_for(inner));
  if (job.pass == ConvPass::kWeight)
    C10_CUDA_CHECK(launch_unfold_weight(fold, type, stack_of(inner.weight), stack_of(job.weight), stream));
}

void run(const Job& job, const Choice& choice) {
  switch (choice.by) {
    case Choice::By::kLanes:
      return run_kernel(job, *kernel_args(job));
    case Choice::By::kProducts:
      return run_products(job);
    case Choice::By::kFolded:
      return run_folded(job, *fold_of(job));
    case Choice::By::kCudnn:
      return run_cudnn(job, choice);
  }
}

// cuDNN's deterministic plans. A weight's gradient may be written in fp32, or in x's type and then widened:
// cuDNN has its fastest kernels for the latter.
std::vector<Choice> cudnn_choices(const Job& job, int most) {
  std::vector<Choice> choices;
  std::vector<KernelType> results{kernel_type(job.x)};
  if (job.pass == ConvPass::kWeight && job.x.element_size() == 2)
    results = {KernelType::kF32, kernel_type(job.x)};
  for (const KernelType result : results) {
    int taken = 0;
    for (auto& plan : cudnn_plans(problem_of(job, result), 2 * most)) {
      if (!plan->is_deterministic() || plan->workspace_bytes() > kMostWorkspaceBytes) continue;
      if (taken++ < most) choices.push_back({Choice::By::kCudnn, std::move(plan), result});
    }
  }
  return choices;
}

// Microseconds of one run on the device, the best of a few. Replayed from a graph, as steps are: what the
// host takes to launch it is not what is chosen by.
double time_of(const Job& job, const Choice& choice) {
  const c10::DeviceIndex device = job.x.device().index();
  const c10::cuda::CUDAStream caller = c10::cuda::getCurrentCUDAStream(device);
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device);
  caller.synchronize();
  const c10::cuda::CUDAStreamGuard guard(side);
  run(job, choice);  // what is made at first use is made
  side.synchronize();
  at::cuda::CUDAGraph graph;
  graph.capture_begin();
  for (int i = 0; i < kRunsOfATiming; ++i) run(job, choice);
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

struct Registry {
  std::recursive_mutex mutex;
  ConvChoosing choosing = ConvChoosing::kMeasure;
  std::map<std::string, Choice> made;
  ConvChoices recorded;
};

Registry& registry() {
  static auto& made = *new Registry;  // plans outlive CUDA otherwise
  return made;
}

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  C10_CUDA_CHECK(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

Choice fixed_choice(const Job& job) {
  if (kernel_args(job)) return {};
  if (fold_of(job)) return {.by = Choice::By::kFolded};
  std::vector<Choice> choices = cudnn_choices(job, 1);
  TORCH_CHECK(!choices.empty(), "lane_conv2d: cuDNN has no deterministic plan for ", key_of(job));
  return choices.front();
}

Choice recorded_choice(const Job& job, const std::string& text) {
  if (text == "lanes" && kernel_args(job)) return {};
  if (text == "products" && is_product(job)) return {.by = Choice::By::kProducts};
  if (text == "folded" && fold_of(job)) return {.by = Choice::By::kFolded};
  for (Choice& choice : cudnn_choices(job, kMostPlans))
    if (choice.text(job.pass) == text) return choice;
  return fixed_choice(job);  // recorded on another device or by another cuDNN
}

Choice measured_choice(const Job& job) {
  std::vector<Choice> candidates = cudnn_choices(job, kMostPlans);
  if (fold_of(job)) candidates.insert(candidates.begin(), Choice{.by = Choice::By::kFolded});
  if (is_product(job)) candidates.insert(candidates.begin(), Choice{.by = Choice::By::kProducts});
  if (kernel_args(job)) candidates.insert(candidates.begin(), Choice{});
  TORCH_CHECK(!candidates.empty(), "lane_conv2d: cuDNN has no deterministic plan for ", key_of(job));
  size_t best = 0;
  double best_us = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < candidates.size() && candidates.size() > 1; ++i) {
    const double us = time_of(job, candidates[i]);
    if (us < best_us) {
      best_us = us;
      best = i;
    }
  }
  return candidates[best];
}

Choice choice_for(const Job& job) {
  // Only the kernel of all lanes leaves out entries that are not there, and how many are is not known here.
  if (job.entries.defined() && kernel_args(job)) return {};
  Registry& all = registry();
  const std::string key = key_of(job);
  const auto found = all.made.find(key);
  if (found != all.made.end()) return found->second;
  const auto recorded = all.recorded.find(key);
  // fp32 and f64 are for exactness: their plans round differently, and cuDNN's first is what torch would
  // take.
  const bool may_measure =
      all.choosing == ConvChoosing::kMeasure && job.x.element_size() == 2 && !is_capturing(stream_of(job.x));
  const Choice choice = recorded != all.recorded.end() ? recorded_choice(job, recorded->second)
                        : may_measure                  ? measured_choice(job)
                                                       : fixed_choice(job);
  all.made.emplace(key, choice);
  return choice;
}

}  // namespace

bool takes_conv_cuda(const at::Tensor& x, const at::Tensor& weight) {
  return x.is_cuda() && (x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf) &&
         format_of(x) == MemoryFormat::kChannelsLast && weight.size(3) == weight.size(4);
}

void conv_by_cuda(ConvPass pass, const at::Tensor& x, const at::Tensor& weight, const at::Tensor& out,
                  const at::Tensor& bias, const ConvGeometry& geometry, const at::Tensor& entries) {
  const c10::cuda::CUDAGuard guard(x.device());
  const Job job{.pass = pass,
                .x = pass == ConvPass::kData ? x : for_kernel(x),
                .weight = pass == ConvPass::kWeight ? weight : for_kernel(weight),
                .out = pass == ConvPass::kForward ? out : for_kernel(out),
                .bias = bias,
                .entries = entries,
                .geometry = geometry};
  const std::lock_guard lock(registry().mutex);  // the branches, and one measurement at a time
  run(job, choice_for(job));
}

void set_conv_choosing(ConvChoosing choosing) {
  const std::lock_guard lock(registry().mutex);
  registry().choosing = choosing;
}

ConvChoices conv_choices() {
  const std::lock_guard lock(registry().mutex);
  ConvChoices all = registry().recorded;
  for (const auto& [key, choice] : registry().made)
    all[key] = choice.text(key.starts_with("weight") ? ConvPass::kWeight : ConvPass::kForward);
  return all;
}

void set_conv_choices(const ConvChoices& choices) {
  for (const auto& [key, text] : choices)
    if (text != "lanes" && text != "products" && text != "folded" && !text.starts_with("cudnn "))
      fail_usage("convolution choices: '{}' of '{}': want lanes, products, folded, or cudnn and a number",
                 text, key);
  const std::lock_guard lock(registry().mutex);
  registry().recorded = choices;
}
#else
void set_conv_choosing(ConvChoosing) {}
ConvChoices conv_choices() {
  return {};
}
void set_conv_choices(const ConvChoices&) {}
#endif

}  // namespace espalier::lanes
