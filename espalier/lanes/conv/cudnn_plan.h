// One lane's convolution by cuDNN: a plan of its graph interface, and the branches that plans run on.
//
// Kept true: a plan is made once and used for every lane, so all lanes are computed alike; results are
// written where they belong, no copy is made.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/lanes/kernel.h"

namespace espalier::lanes {

enum class ConvPass { kForward, kData, kWeight };

// One lane. Channels-last.
struct CudnnProblem {
  ConvPass pass = ConvPass::kForward;
  int64_t batch = 0, channels = 0, height = 0, width = 0;
  int64_t filters = 0, out_height = 0, out_width = 0;
  int64_t kernel = 0, stride = 1, padding = 0, groups = 1;
  KernelType type = KernelType::kBf16;    // x's, weight's and out's
  KernelType result = KernelType::kBf16;  // what is written: x's type, or f32 for the weight's gradient
};

class CudnnPlan {
 public:
  ~CudnnPlan();
  CudnnPlan(const CudnnPlan&) = delete;
  CudnnPlan& operator=(const CudnnPlan&) = delete;

  int64_t workspace_bytes() const { return workspace_bytes_; }
  bool is_deterministic() const { return is_deterministic_; }
  int place() const { return place_; }  // in cuDNN's list

 private:
  friend std::vector<std::unique_ptr<CudnnPlan>> cudnn_plans(const CudnnProblem&, int);
  friend class CudnnBranches;
  CudnnPlan() = default;

  void* descriptor_ = nullptr;  // cudnnBackendDescriptor_t
  int64_t workspace_bytes_ = 0;
  bool is_deterministic_ = false;
  int place_ = 0;
};

// cuDNN's plans for the problem in its own order, best guess first; `most` at most. Empty: it takes none.
std::vector<std::unique_ptr<CudnnPlan>> cudnn_plans(const CudnnProblem& problem, int most);

// A device's streams with a cuDNN handle each. Work between fork() and join() runs beside, ordered after what
// the stream had before and before what it gets after; captured as parallel branches where it is captured.
class CudnnBranches {
 public:
  static constexpr int kBranches = 8;
  static CudnnBranches& for_device(int device);

  void fork(cudaStream_t stream);
  // One lane's arrays and the branch's own workspace.
  void run(int branch, const CudnnPlan& plan, void* x, void* weight, void* out, void* workspace);
  void join(cudaStream_t stream);

 private:
  explicit CudnnBranches(int device);
  struct Branch;
  std::vector<std::unique_ptr<Branch>> branches_;
  cudaEvent_t forked_ = nullptr;
};

}  // namespace espalier::lanes
