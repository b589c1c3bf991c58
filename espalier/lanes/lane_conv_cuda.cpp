#include "espalier/core/error.h"
#include "espalier/lanes/conv_choice.h"

#if ESPALIER_WITH_CUDA
#include "espalier/lanes/lane_conv_cuda.h"

#include <ATen/ops/empty.h>

#include <limits>
#include <mutex>

#include "espalier/lanes/lane_conv_kernel.h"
#include "espalier/lanes/lane_launch.h"
#endif

namespace espalier::lanes {

#if ESPALIER_WITH_CUDA
namespace {

constexpr int kMostPlans = 6;                         // of cuDNN that are tried
constexpr int64_t kMostWorkspaceBytes = 256LL << 20;  // a branch
constexpr int kTimings = 3;

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
  std::shared_ptr<CudnnPlan> plan;  // nullptr: the kernel of all lanes
  KernelType result = KernelType::kF32;
  std::string text() const { return plan ? fmt::format("cudnn {}", plan->place()) : "lanes"; }
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

// The kernel of all lanes, where it takes the job.
std::optional<ConvArgs> kernel_args(const Job& job) {
  const at::Tensor &x = job.x, &out = job.out;
  if ((x.scalar_type() != at::kBFloat16 && x.scalar_type() != at::kHalf) || job.geometry.groups != 1)
    return std::nullopt;
  const int64_t pixels = x.size(1) * std::max(x.size(3) * x.size(4), out.size(3) * out.size(4));
  if (pixels * std::max(x.size(2), out.size(2)) >= int64_t{1} << 31) return std::nullopt;  // 32-bit places
  const auto size = [](const at::Tensor& tensor, int64_t axis) {
    return static_cast<int32_t>(tensor.size(axis));
  };
  ConvArgs args;
  args.sizes = {.lanes = size(x, 0),
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
  if (!is_own) job.weight.copy_(weight);
  if (job.pass == ConvPass::kForward && job.bias.defined())
    job.out.add_(job.bias.to(job.out.scalar_type()).view({job.out.size(0), 1, job.out.size(2), 1, 1}));
}

void run(const Job& job, const Choice& choice) {
  if (choice.plan)
    run_cudnn(job, choice);
  else
    run_kernel(job, *kernel_args(job));
}

// cuDNN's deterministic plans. A weight's gradient is wanted in fp32; where no plan writes that, in x's type.
std::vector<Choice> cudnn_choices(const Job& job, int most) {
  std::vector<Choice> choices;
  std::vector<KernelType> results{kernel_type(job.x)};
  if (job.pass == ConvPass::kWeight && job.x.element_size() == 2)
    results = {KernelType::kF32, kernel_type(job.x)};
  for (const KernelType result : results) {
    for (auto& plan : cudnn_plans(problem_of(job, result), 2 * most)) {
      if (!plan->is_deterministic() || plan->workspace_bytes() > kMostWorkspaceBytes) continue;
      if (static_cast<int>(choices.size()) < most) choices.push_back({std::move(plan), result});
    }
    if (!choices.empty()) break;
  }
  return choices;
}

// Microseconds of one run, the best of a few.
double time_of(const Job& job, const Choice& choice) {
  const cudaStream_t stream = stream_of(job.x);
  cudaEvent_t began = nullptr, ended = nullptr;
  C10_CUDA_CHECK(cudaEventCreate(&began));
  C10_CUDA_CHECK(cudaEventCreate(&ended));
  run(job, choice);
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTimings; ++i) {
    C10_CUDA_CHECK(cudaEventRecord(began, stream));
    run(job, choice);
    C10_CUDA_CHECK(cudaEventRecord(ended, stream));
    C10_CUDA_CHECK(cudaEventSynchronize(ended));
    float ms = 0;
    C10_CUDA_CHECK(cudaEventElapsedTime(&ms, began, ended));
    best = std::min(best, static_cast<double>(ms) * 1e3);
  }
  C10_CUDA_CHECK(cudaEventDestroy(began));
  C10_CUDA_CHECK(cudaEventDestroy(ended));
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
  std::vector<Choice> choices = cudnn_choices(job, 1);
  TORCH_CHECK(!choices.empty(), "lane_conv2d: cuDNN has no deterministic plan for ", key_of(job));
  return choices.front();
}

Choice recorded_choice(const Job& job, const std::string& text) {
  if (text == "lanes" && kernel_args(job)) return {};
  for (Choice& choice : cudnn_choices(job, kMostPlans))
    if (choice.text() == text) return choice;
  return fixed_choice(job);  // recorded on another device or by another cuDNN
}

Choice measured_choice(const Job& job) {
  std::vector<Choice> candidates = cudnn_choices(job, kMostPlans);
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
  for (const auto& [key, choice] : registry().made) all[key] = choice.text();
  return all;
}

void set_conv_choices(const ConvChoices& choices) {
  for (const auto& [key, text] : choices)
    if (text != "lanes" && !text.starts_with("cudnn "))
      fail_usage("convolution choices: '{}' of '{}': want lanes, or cudnn and a number", text, key);
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
