// espalier/lanes/conv/cudnn_plan.cpp for emulated kernels: there is no cuDNN, and choose.cpp never asks for
// it.
#include "espalier/lanes/conv/cudnn_plan.h"

#include <c10/util/Exception.h>

namespace espalier::lanes {

struct CudnnBranches::Branch {};

CudnnPlan::~CudnnPlan() = default;

std::vector<std::unique_ptr<CudnnPlan>> cudnn_plans(const CudnnProblem&, int) {
  return {};
}

CudnnBranches& CudnnBranches::for_device(int) {
  TORCH_INTERNAL_ASSERT(false, "no cuDNN among emulated kernels");
}
void CudnnBranches::fork(cudaStream_t) {}
void CudnnBranches::run(int, const CudnnPlan&, void*, void*, void*, void*) {}
void CudnnBranches::join(cudaStream_t) {}

}  // namespace espalier::lanes
