// What CUDA gives a kernel, on the CPU: threads of a block, their barriers, warps, shared memory,
// asynchronous copies and launches. translate.py turns the library's kernels into C++ that includes this.
//
// Kept true:
// - Blocks run one after another. The threads of a block are fibers that take turns, each until it waits at a
//   barrier or ends; whoever passes a barrier sees what the others did before it, and nothing else is
//   promised: with ESPALIER_EMULATED_ORDER=backward the turns go the other way round, so what depends on
//   their order shows.
// - An asynchronous copy happens when it is waited for, not before.
// - Shared memory that a launch asks for is filled with NaNs before every block and ends where it was told.
// - A launch that a GPU would refuse is refused: too many threads, blocks or bytes, or over 48 KiB without
//   asking. What kernels declare for themselves counts too: it is known, and refused, after the first block.
//   Backward (above) the card is a small one, with 99 KiB for a block instead of 227.
// - A kernel may ask for more shared memory than before, never for less: a captured launch keeps what it was
//   allowed.
// - A barrier that is never passed ends the program with a sentence.
// No warp runs in lockstep unless it asks to, and nothing tells global from shared memory.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>
#include <math.h>  // NOLINT: kernels call sqrt(float) by its plain name

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__
#define __device__
#define __host__
#define __constant__
#define __launch_bounds__(...)
#define __grid_constant__
#define __restrict__
// One block at a time: what its threads share is what there is one of.
#define __shared__ static_assert(false, "translate.py does not know this form of shared memory")

namespace espalier::emulate {

constexpr int kWarp = 32;

struct Thread {
  uint3 thread, block;
  dim3 threads, blocks;
  int index;  // in the block
};
// The fiber that runs.
const Thread& self();

// Barriers of a block: all threads that have not ended. The count is of those that said yes.
int block_barrier(bool yes);

// What each of the warp's threads in `mask` gave, by lane: a barrier of them. Those that are not in it, or
// have ended, have given nothing. Valid until the calling thread's second exchange after this one.
constexpr size_t kMostExchanged = 64;
const std::byte* exchange(uint32_t mask, const void* own, size_t bytes);

template <class T>
class FromWarp {
 public:
  FromWarp(uint32_t mask, const T& own) : bytes_(exchange(mask, &own, sizeof(T))) {
    static_assert(sizeof(T) <= kMostExchanged && std::is_trivially_copyable_v<T>);
  }
  const T& operator[](int lane) const {
    return *reinterpret_cast<const T*>(bytes_ + static_cast<size_t>(lane) * kMostExchanged);
  }

 private:
  const std::byte* bytes_;
};

// The copies of a thread, in the order in which they were begun.
void begin_copy(void* to, const void* from, size_t bytes);  // from nullptr: zeros
void commit_copies();
void wait_copies(size_t pending_groups);

void* dynamic_shared();

// What a kernel declares for itself is counted as it is met. place: tells declarations apart.
void count_static_shared(const void* place, size_t bytes);

// Shared memory by 32-bit addresses, as matrix instructions have them.
uint32_t shared_address(const void* pointer);
const std::byte* at_shared_address(uint32_t address);

template <class... Args>
struct Call;

struct Launch {
  dim3 grid, block;
  size_t bytes = 0;
  cudaStream_t stream = nullptr;

  template <class... Args>
  Call<std::decay_t<Args>...> operator()(Args&&... args) const {
    return {*this, {std::forward<Args>(args)...}};
  }
};

template <class... Args>
struct Call {
  Launch launch;
  std::tuple<Args...> args;
};

// So far, whatever became of them.
std::atomic<int64_t>& launches();

// kernel: for the bytes that it was allowed. What is wrong with the launch is kept for last_error().
void run(const void* kernel, const Launch& launch, const std::function<void()>& thread);

// kernel<<<grid, block, bytes, stream>>>(args) is translated into kernel / Launch{...}(args).
template <class... Parameters, class... Args>
void operator/(void (*kernel)(Parameters...), const Call<Args...>& call) {
  const std::tuple<std::remove_cvref_t<Parameters>...> parameters(call.args);
  run(reinterpret_cast<const void*>(kernel), call.launch, [&] { std::apply(kernel, parameters); });
}

cudaError_t last_error();
cudaError_t get_device(int* device);
cudaError_t device_attribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <class... Parameters>
cudaError_t set_attribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return set_attribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

}  // namespace espalier::emulate

#define threadIdx (::espalier::emulate::self().thread)
#define blockIdx (::espalier::emulate::self().block)
#define blockDim (::espalier::emulate::self().threads)
#define gridDim (::espalier::emulate::self().blocks)
#define cudaGetLastError ::espalier::emulate::last_error
#define cudaFuncSetAttribute ::espalier::emulate::set_attribute
#define cudaGetDevice ::espalier::emulate::get_device
#define cudaDeviceGetAttribute ::espalier::emulate::device_attribute

inline void __syncthreads() {
  espalier::emulate::block_barrier(false);
}
inline int __syncthreads_count(int yes) {
  return espalier::emulate::block_barrier(yes != 0);
}
inline void __syncwarp(uint32_t mask = 0xffffffffu) {
  espalier::emulate::exchange(mask, nullptr, 0);
}
template <class T>
T __shfl_xor_sync(uint32_t mask, T value, int lanes, int width = espalier::emulate::kWarp) {
  using namespace espalier::emulate;
  const int lane = self().index % kWarp, other = lane ^ lanes;
  const FromWarp<T> all(mask, value);
  return other / width == lane / width ? all[other] : value;
}
template <class T>
T __shfl_down_sync(uint32_t mask, T value, int lanes, int width = espalier::emulate::kWarp) {
  using namespace espalier::emulate;
  const int lane = self().index % kWarp, other = lane + lanes;
  const FromWarp<T> all(mask, value);
  return other / width == lane / width ? all[other] : value;
}
template <class T>
T atomicAdd(T* to, T value) {
  return std::exchange(*to, *to + value);
}
inline float __fmaf_rn(float a, float b, float c) {
  return fmaf(a, b, c);
}
// Rounded by themselves: a compiler that fuses products and sums, as nvcc does, does not see into these.
inline float __fmul_rn(float a, float b) {
  float product = a * b;
  asm("" : "+x"(product));
  return product;
}
inline float __fadd_rn(float a, float b) {
  asm("" : "+x"(a), "+x"(b));
  return a + b;
}
inline double __dmul_rn(double a, double b) {
  double product = a * b;
  asm("" : "+x"(product));
  return product;
}
inline double __dadd_rn(double a, double b) {
  asm("" : "+x"(a), "+x"(b));
  return a + b;
}
inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t shift) {
  return static_cast<uint32_t>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}
inline void __pipeline_memcpy_async(void* to, const void* from, size_t bytes) {
  espalier::emulate::begin_copy(to, from, bytes);
}
inline void __pipeline_commit() {
  espalier::emulate::commit_copies();
}
inline void __pipeline_wait_prior(size_t pending) {
  espalier::emulate::wait_copies(pending);
}

// As CUDA has them: of any two numbers.
namespace espalier {
template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(b) < static_cast<T>(a) ? static_cast<T>(b) : static_cast<T>(a);
}
template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using T = std::common_type_t<A, B>;
  return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(b) : static_cast<T>(a);
}
}  // namespace espalier
