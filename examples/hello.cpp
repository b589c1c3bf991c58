// The smallest program of this project: a tensor from LibTorch, and one kernel where there is a GPU. It shows
// that a machine can compile, link and run both.
#include <ATen/ATen.h>

#include <cstdio>

#if ESPALIER_WITH_CUDA
int hello_kernel_devices();  // in hello_kernel.cu
#endif

int main() {
  const at::Tensor x = at::arange(6, at::kFloat).view({2, 3});
  std::printf("torch sums 0..5 to %.0f\n", x.sum().item<double>());
#if ESPALIER_WITH_CUDA
  const int devices = hello_kernel_devices();
  if (devices > 0) {
    std::printf("the kernel ran on %d GPU(s)\n", devices);
  } else {
    std::printf("the kernel is linked; there is no GPU here to run it\n");
  }
#endif
  return x.sum().item<double>() == 15.0 ? 0 : 1;
}
