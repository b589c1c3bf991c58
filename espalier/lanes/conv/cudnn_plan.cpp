#if ESPALIER_WITH_CUDA
#include "espalier/lanes/conv/cudnn_plan.h"

#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cudnn.h>

#include <array>
#include <mutex>

namespace espalier::lanes {
namespace {

constexpr int64_t kX = 'x', kWeight = 'w', kOut = 'y';  // what tensors are called in a graph

void check(cudnnStatus_t status, const char* what) {
  TORCH_CHECK(status == CUDNN_STATUS_SUCCESS, "cuDNN: ", what, ": ", cudnnGetErrorString(status));
}

// A descriptor of the graph interface; freed with it.
class Descriptor {
 public:
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, &descriptor_), "cudnnBackendCreateDescriptor");
  }
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, nullptr)) {}
  ~Descriptor() {
    if (descriptor_) cudnnBackendDestroyDescriptor(descriptor_);
  }
  cudnnBackendDescriptor_t get() const { return descriptor_; }
  cudnnBackendDescriptor_t release() { return std::exchange(descriptor_, nullptr); }

  template <class T>
  cudnnStatus_t try_set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                        std::initializer_list<T> values) {
    return cudnnBackendSetAttribute(descriptor_, name, type, static_cast<int64_t>(values.size()),
                                    values.begin());
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           std::initializer_list<T> values) {
    check(try_set(name, type, values), "cudnnBackendSetAttribute");
  }
  cudnnStatus_t try_finalize() { return cudnnBackendFinalize(descriptor_); }
  void finalize() { check(try_finalize(), "cudnnBackendFinalize"); }

 private:
  cudnnBackendDescriptor_t descriptor_ = nullptr;
};

cudnnDataType_t type_of(KernelType type) {
  switch (type) {
    case KernelType::kF32:
      return CUDNN_DATA_FLOAT;
    case KernelType::kF64:
      return CUDNN_DATA_DOUBLE;
    case KernelType::kBf16:
      return CUDNN_DATA_BFLOAT16;
    case KernelType::kF16:
      return CUDNN_DATA_HALF;
  }
  return CUDNN_DATA_FLOAT;
}

// [n,c,h,w] with memory order n,h,w,c. Lanes begin on 256 bytes, but a plan asks for no more than vectors.
Descriptor tensor(int64_t name, KernelType type, int64_t n, int64_t c, int64_t h, int64_t w) {
  Descriptor made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  made.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, {type_of(type)});
  made.set<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, {n, c, h, w});
  made.set<int64_t>(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, {h * w * c, 1, w * c, c});
  made.set<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, {name});
  made.set<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, {16});
  made.finalize();
  return made;
}

Descriptor convolution(const CudnnProblem& problem) {
  Descriptor made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const auto compute = problem.type == KernelType::kF64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
  made.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, {compute});
  made.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, {CUDNN_CROSS_CORRELATION});
  made.set<int64_t>(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, {2});
  made.set<int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64,
                    {problem.padding, problem.padding});
  made.set<int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
                    {problem.padding, problem.padding});
  made.set<int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, {1, 1});
  made.set<int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
                    {problem.stride, problem.stride});
  made.finalize();
  return made;
}

struct PassNames {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, x, weight, out, alpha, beta;
};

PassNames names_of(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForward:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
    case ConvPass::kData:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
    case ConvPass::kWeight:
      return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
              CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};
  }
  TORCH_INTERNAL_ASSERT(false);
}

// A handle that makes plans; those that run them belong to branches.
cudnnHandle_t planning_handle() {
  static const cudnnHandle_t handle = [] {
    cudnnHandle_t made = nullptr;
    check(cudnnCreate(&made), "cudnnCreate");
    return made;
  }();
  return handle;
}

Descriptor operation_graph(const CudnnProblem& problem) {
  const ConvPass pass = problem.pass;
  const auto written = [&](ConvPass by) { return pass == by ? problem.result : problem.type; };
  const Descriptor x =
      tensor(kX, written(ConvPass::kData), problem.batch, problem.channels, problem.height, problem.width);
  const Descriptor weight = tensor(kWeight, written(ConvPass::kWeight), problem.filters,
                                   problem.channels / problem.groups, problem.kernel, problem.kernel);
  const Descriptor out = tensor(kOut, written(ConvPass::kForward), problem.batch, problem.filters,
                                problem.out_height, problem.out_width);
  const Descriptor geometry = convolution(problem);
  const PassNames names = names_of(pass);
  Descriptor operation(names.operation);
  operation.set(names.convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, {geometry.get()});
  operation.set(names.x, CUDNN_TYPE_BACKEND_DESCRIPTOR, {x.get()});
  operation.set(names.weight, CUDNN_TYPE_BACKEND_DESCRIPTOR, {weight.get()});
  operation.set(names.out, CUDNN_TYPE_BACKEND_DESCRIPTOR, {out.get()});
  if (problem.type == KernelType::kF64) {
    operation.set(names.alpha, CUDNN_TYPE_DOUBLE, {1.0});
    operation.set(names.beta, CUDNN_TYPE_DOUBLE, {0.0});
  } else {
    operation.set(names.alpha, CUDNN_TYPE_FLOAT, {1.0f});
    operation.set(names.beta, CUDNN_TYPE_FLOAT, {0.0f});
  }
  operation.finalize();
  Descriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, {planning_handle()});
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, {operation.get()});
  graph.finalize();
  return graph;
}

// The engine configurations that cuDNN proposes.
std::vector<Descriptor> configurations(const Descriptor& graph, cudnnBackendHeurMode_t mode) {
  Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, {graph.get()});
  heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, {mode});
  std::vector<Descriptor> found;
  if (heuristics.try_finalize() != CUDNN_STATUS_SUCCESS) return found;
  int64_t count = 0;
  check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr),
        "cudnnBackendGetAttribute");
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    found.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(found.back().get());
  }
  int64_t got = 0;
  check(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &got, raw.data()),
        "cudnnBackendGetAttribute");
  while (static_cast<int64_t>(found.size()) > got) found.pop_back();
  return found;
}

// Whether the configuration's engine says that it gives other bits every time, or rounds fp32 to TF32.
struct EngineNotes {
  bool is_deterministic = true;
  bool narrows_inputs = false;
};

EngineNotes notes_of(const Descriptor& configuration, KernelType type) {
  Descriptor engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t raw = engine.get();
  int64_t got = 0;
  check(cudnnBackendGetAttribute(configuration.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &got, &raw),
        "cudnnBackendGetAttribute");
  std::array<cudnnBackendNumericalNote_t, CUDNN_NUMERICAL_NOTE_TYPE_COUNT> notes{};
  check(cudnnBackendGetAttribute(raw, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 static_cast<int64_t>(notes.size()), &got, notes.data()),
        "cudnnBackendGetAttribute");
  EngineNotes found;
  for (int64_t i = 0; i < got; ++i) {
    const auto note = notes[static_cast<size_t>(i)];
    if (note == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) found.is_deterministic = false;
    if (note == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS ||
        note == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION || note == CUDNN_NUMERICAL_NOTE_WINOGRAD ||
        note == CUDNN_NUMERICAL_NOTE_FFT)
      found.narrows_inputs = true;
    if (note == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && type == KernelType::kF32) found.narrows_inputs = true;
  }
  return found;
}

}  // namespace

CudnnPlan::~CudnnPlan() {
  if (descriptor_) cudnnBackendDestroyDescriptor(static_cast<cudnnBackendDescriptor_t>(descriptor_));
}

std::vector<std::unique_ptr<CudnnPlan>> cudnn_plans(const CudnnProblem& problem, int most) {
  std::vector<std::unique_ptr<CudnnPlan>> plans;
  const Descriptor graph = operation_graph(problem);
  int place = 0;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK})
    for (const Descriptor& configuration : configurations(graph, mode)) {
      const int here = place++;
      if (static_cast<int>(plans.size()) >= most) return plans;
      const EngineNotes notes = notes_of(configuration, problem.type);
      if (notes.narrows_inputs) continue;  // fp32 means fp32; nor are Winograd's roundings wanted
      Descriptor plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, {planning_handle()});
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, {configuration.get()});
      if (plan.try_finalize() != CUDNN_STATUS_SUCCESS) continue;  // not on this device
      int64_t bytes = 0, got = 0;
      check(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                     1, &got, &bytes),
            "cudnnBackendGetAttribute");
      plans.push_back(std::unique_ptr<CudnnPlan>(new CudnnPlan));
      plans.back()->descriptor_ = plan.release();
      plans.back()->workspace_bytes_ = bytes;
      plans.back()->is_deterministic_ = notes.is_deterministic;
      plans.back()->place_ = here;
    }
  return plans;
}

struct CudnnBranches::Branch {
  c10::cuda::CUDAStream stream;
  cudnnHandle_t handle = nullptr;
  cudaEvent_t done = nullptr;

  explicit Branch(int device)
      : stream(c10::cuda::getStreamFromPool(false, static_cast<c10::DeviceIndex>(device))) {
    check(cudnnCreate(&handle), "cudnnCreate");
    check(cudnnSetStream(handle, stream.stream()), "cudnnSetStream");
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  }
};

CudnnBranches& CudnnBranches::for_device(int device) {
  // For the life of the process: CUDA may be gone before static objects are.
  static std::mutex mutex;
  static auto& all = *new std::vector<CudnnBranches*>;
  const std::lock_guard lock(mutex);
  if (static_cast<int>(all.size()) <= device) all.resize(static_cast<size_t>(device) + 1);
  CudnnBranches*& branches = all[static_cast<size_t>(device)];
  if (!branches) branches = new CudnnBranches(device);
  return *branches;
}

CudnnBranches::CudnnBranches(int device) {
  const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(device));
  for (int i = 0; i < kBranches; ++i) branches_.push_back(std::make_unique<Branch>(device));
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&forked_, cudaEventDisableTiming));
}

void CudnnBranches::fork(cudaStream_t stream) {
  C10_CUDA_CHECK(cudaEventRecord(forked_, stream));
  for (const auto& branch : branches_) C10_CUDA_CHECK(cudaStreamWaitEvent(branch->stream.stream(), forked_));
}

void CudnnBranches::run(int index, const CudnnPlan& plan, void* x, void* weight, void* out, void* workspace) {
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, {x, weight, out});
  pack.set<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, {kX, kWeight, kOut});
  pack.set<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, {workspace});
  pack.finalize();
  check(cudnnBackendExecute(branches_[static_cast<size_t>(index)]->handle,
                            static_cast<cudnnBackendDescriptor_t>(plan.descriptor_), pack.get()),
        "cudnnBackendExecute");
}

void CudnnBranches::join(cudaStream_t stream) {
  for (const auto& branch : branches_) {
    C10_CUDA_CHECK(cudaEventRecord(branch->done, branch->stream.stream()));
    C10_CUDA_CHECK(cudaStreamWaitEvent(stream, branch->done));
  }
}

}  // namespace espalier::lanes
#endif
