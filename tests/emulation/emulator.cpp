#include "tests/emulation/emulator.h"

#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// Saves what a call keeps, leaves the stack for `from` to come back to, and goes on where `to` was left.
extern "C" void espalier_switch_stack(void** from, void* to);
asm(R"(
.text
.globl espalier_switch_stack
.type espalier_switch_stack, @function
espalier_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size espalier_switch_stack, .-espalier_switch_stack
)");

namespace espalier::emulate {
namespace {

// What an H200 allows, and of shared memory also what a small card does.
constexpr size_t kMostThreads = 1024, kMostBytes = 232448, kMostBytesOfASmallCard = 99 << 10;
constexpr size_t kBytesWithoutAsking = 48 << 10;
constexpr uint32_t kMostBlocks = 0x7fffffff, kMostBlocksAcross = 65535;
constexpr size_t kStackBytes = 256 << 10;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "emulated kernel: %s\n", why);
  std::abort();
}

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
};

// The threads of a warp that meet under one mask.
struct Meeting {
  uint32_t mask = 0;
  int arrived = 0;
  uint64_t times = 0;
  alignas(16) std::byte given[2][kWarp * kMostExchanged];  // by turns: the last ones are still read
};

struct Fiber {
  Thread thread{};
  void* stack = nullptr;  // its lowest byte
  void* stack_pointer = nullptr;
  bool has_ended = false;
  std::vector<Copy> copies;
  std::vector<size_t> groups;  // ends in `copies`
};

class Block {
 public:
  void run(const Launch& launch, uint3 place, const std::function<void()>& body);

  const Thread& thread() const { return now_->thread; }
  Fiber& now() { return *now_; }
  int barrier(bool yes);
  const std::byte* exchange(uint32_t mask, const void* own, size_t bytes);
  void* shared() { return shared_; }

 private:
  static void enter();
  void begin(Fiber& fiber);
  void resume(Fiber& fiber);
  void yield();
  void pass_barrier();

  const std::function<void()>* body_ = nullptr;
  std::vector<Fiber> fibers_ = std::vector<Fiber>(kMostThreads);
  std::vector<std::vector<std::unique_ptr<Meeting>>> warps_ =
      std::vector<std::vector<std::unique_ptr<Meeting>>>(kMostThreads / kWarp);
  Fiber* now_ = nullptr;
  void* own_stack_ = nullptr;
  uint32_t alive_in_warp_[kMostThreads / kWarp] = {};  // by lane
  uint64_t progress_ = 0;                              // barriers passed and threads ended
  int alive_ = 0, arrived_ = 0, said_yes_ = 0, last_count_ = 0;
  uint64_t barriers_passed_ = 0;
  std::vector<std::byte> shared_bytes_ = std::vector<std::byte>(kMostBytes + 256);
  std::byte* shared_ = nullptr;
#if defined(__SANITIZE_ADDRESS__)
  const void* own_bottom_ = nullptr;
  size_t own_size_ = 0;
#endif
};

Block& block() {
  static auto& one = *new Block;
  return one;
}

bool goes_backward() {
  const char* const order = std::getenv("ESPALIER_EMULATED_ORDER");
  return order != nullptr && std::string_view(order) == "backward";
}

int most_bytes() {
  return static_cast<int>(goes_backward() ? kMostBytesOfASmallCard : kMostBytes);
}

void Block::enter() {
  Block& all = block();
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &all.own_bottom_, &all.own_size_);
#endif
  (*all.body_)();
  const int index = all.now_->thread.index;
  all.now_->has_ended = true;
  all.alive_in_warp_[index / kWarp] &= ~(1u << index % kWarp);
  --all.alive_;
  ++all.progress_;
  if (all.alive_ > 0 && all.arrived_ == all.alive_) all.pass_barrier();
  all.yield();
  give_up("a thread that had ended was resumed");
}

void Block::begin(Fiber& fiber) {
  if (fiber.stack == nullptr) {
    fiber.stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fiber.stack == MAP_FAILED) give_up("no memory for the stacks of a block's threads");
  }
  // As espalier_switch_stack leaves it: six registers, and enter() to return to; below it the stack is
  // aligned as at a call.
  auto* const top = reinterpret_cast<void**>(static_cast<std::byte*>(fiber.stack) + kStackBytes);
  void** at = top - 2;
  *at = reinterpret_cast<void*>(&Block::enter);
  for (int i = 0; i < 6; ++i) *--at = nullptr;
  fiber.stack_pointer = at;
  fiber.has_ended = false;
  fiber.copies.clear();
  fiber.groups.clear();
}

void Block::resume(Fiber& fiber) {
  now_ = &fiber;
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, fiber.stack, kStackBytes);
  espalier_switch_stack(&own_stack_, fiber.stack_pointer);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  espalier_switch_stack(&own_stack_, fiber.stack_pointer);
#endif
}

void Block::yield() {
#if defined(__SANITIZE_ADDRESS__)
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(now_->has_ended ? nullptr : &fake, own_bottom_, own_size_);
  espalier_switch_stack(&now_->stack_pointer, own_stack_);
  __sanitizer_finish_switch_fiber(fake, &own_bottom_, &own_size_);
#else
  espalier_switch_stack(&now_->stack_pointer, own_stack_);
#endif
}

void Block::run(const Launch& launch, uint3 place, const std::function<void()>& body) {
  const dim3 size = launch.block;
  const int threads = static_cast<int>(size.x * size.y * size.z);
  body_ = &body;
  alive_ = threads;
  arrived_ = said_yes_ = 0;
  // Ends where the vector does, so that a sanitizer sees who goes past it.
  const size_t bytes = (launch.bytes + 15) / 16 * 16;
  auto* const end = shared_bytes_.data() + shared_bytes_.size();
  shared_ = reinterpret_cast<std::byte*>((reinterpret_cast<uintptr_t>(end) - bytes) & ~uintptr_t{15});
  std::memset(shared_, 0xff, bytes);
  for (int index = 0; index < threads; ++index) {
    Fiber& fiber = fibers_[static_cast<size_t>(index)];
    const auto i = static_cast<uint32_t>(index);
    fiber.thread = {.thread = {i % size.x, i / size.x % size.y, i / size.x / size.y},
                    .block = place,
                    .threads = size,
                    .blocks = launch.grid,
                    .index = index};
    begin(fiber);
    if (index % kWarp == 0) alive_in_warp_[index / kWarp] = 0;
    alive_in_warp_[index / kWarp] |= 1u << index % kWarp;
  }
  for (auto& warp : warps_)
    for (const auto& meeting : warp) meeting->arrived = 0;
  const bool backward = goes_backward();
  while (alive_ > 0) {
    const uint64_t before = progress_;
    for (int turn = 0; turn < threads; ++turn) {
      Fiber& fiber = fibers_[static_cast<size_t>(backward ? threads - 1 - turn : turn)];
      if (!fiber.has_ended) resume(fiber);
    }
    if (progress_ == before) give_up("its threads wait at barriers that not all of them reach");
  }
}

void Block::pass_barrier() {
  last_count_ = said_yes_;
  arrived_ = said_yes_ = 0;
  ++barriers_passed_;
  ++progress_;
}

int Block::barrier(bool yes) {
  const uint64_t passed = barriers_passed_;
  said_yes_ += yes ? 1 : 0;
  if (++arrived_ == alive_)
    pass_barrier();
  else
    while (barriers_passed_ == passed) yield();
  return last_count_;
}

const std::byte* Block::exchange(uint32_t mask, const void* own, size_t bytes) {
  const int index = now_->thread.index, lane = index % kWarp;
  if ((mask >> lane & 1) == 0) give_up("a thread meets others under a mask that it is not in");
  auto& meetings = warps_[static_cast<size_t>(index / kWarp)];
  auto found = std::ranges::find(meetings, mask, [](const auto& each) { return each->mask; });
  if (found == meetings.end()) {
    meetings.push_back(std::make_unique<Meeting>());
    meetings.back()->mask = mask;
    found = meetings.end() - 1;
  }
  Meeting& meeting = **found;
  const uint64_t times = meeting.times;
  std::byte* const given = meeting.given[times % 2];
  if (bytes > 0) std::memcpy(given + static_cast<size_t>(lane) * kMostExchanged, own, bytes);
  ++meeting.arrived;
  while (meeting.times == times) {
    // Those that have ended are not waited for.
    if (meeting.arrived == std::popcount(mask & alive_in_warp_[index / kWarp])) {
      meeting.arrived = 0;
      ++meeting.times;
      ++progress_;
      break;
    }
    yield();
  }
  return given;
}

cudaError_t& error() {
  static cudaError_t last = cudaSuccess;
  return last;
}

std::map<const void*, int>& allowed_bytes() {
  static auto& allowed = *new std::map<const void*, int>;
  return allowed;
}

// What a launch may ask for where the kernel declares so much for itself.
size_t most_dynamic_bytes(const void* kernel, size_t static_bytes) {
  const auto allowed = allowed_bytes().find(kernel);
  const size_t asked = allowed == allowed_bytes().end() ? 0 : static_cast<size_t>(allowed->second);
  const auto less_static = [&](size_t bytes) { return bytes - std::min(bytes, static_bytes); };
  return std::max(less_static(kBytesWithoutAsking),
                  std::min(asked, less_static(static_cast<size_t>(most_bytes()))));
}

// Declarations that the launch under way has met.
std::map<const void*, size_t>& static_shared() {
  static auto& bytes = *new std::map<const void*, size_t>;
  return bytes;
}

cudaError_t fault_in(const void* kernel, const Launch& launch) {
  const dim3 grid = launch.grid, block = launch.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads == 0) return cudaErrorInvalidConfiguration;
  if (grid.x > kMostBlocks || grid.y > kMostBlocksAcross || grid.z > kMostBlocksAcross)
    return cudaErrorInvalidConfiguration;
  if (threads > kMostThreads || block.z > 64) return cudaErrorInvalidConfiguration;
  return launch.bytes > most_dynamic_bytes(kernel, 0) ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

const Thread& self() {
  return block().thread();
}

int block_barrier(bool yes) {
  return block().barrier(yes);
}

const std::byte* exchange(uint32_t mask, const void* own, size_t bytes) {
  return block().exchange(mask, own, bytes);
}

void begin_copy(void* to, const void* from, size_t bytes) {
  block().now().copies.push_back({to, from, bytes});
}

void commit_copies() {
  Fiber& fiber = block().now();
  fiber.groups.push_back(fiber.copies.size());
}

void wait_copies(size_t pending_groups) {
  Fiber& fiber = block().now();
  if (fiber.groups.size() <= pending_groups) return;
  const size_t done = fiber.groups[fiber.groups.size() - 1 - pending_groups];
  for (size_t i = 0; i < done; ++i) {
    const Copy& copy = fiber.copies[i];
    if (copy.from != nullptr)
      std::memcpy(copy.to, copy.from, copy.bytes);
    else
      std::memset(copy.to, 0, copy.bytes);
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<std::ptrdiff_t>(done));
  fiber.groups.erase(fiber.groups.begin(), fiber.groups.end() - static_cast<std::ptrdiff_t>(pending_groups));
  for (size_t& end : fiber.groups) end -= done;
}

void* dynamic_shared() {
  return block().shared();
}

// Addresses are the low halves of pointers; the high half is that of whatever was asked for last.
namespace {
uintptr_t& high_half() {
  static uintptr_t high = 0;
  return high;
}
}  // namespace

uint32_t shared_address(const void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  high_half() = address >> 32 << 32;
  return static_cast<uint32_t>(address);
}

const std::byte* at_shared_address(uint32_t address) {
  return reinterpret_cast<const std::byte*>(high_half() | address);
}

void count_static_shared(const void* place, size_t bytes) {
  static_shared().emplace(place, bytes);
}

std::atomic<int64_t>& launches() {
  static std::atomic<int64_t> count = 0;
  return count;
}

void run(const void* kernel, const Launch& launch, const std::function<void()>& thread) {
  launches() += 1;
  if (const cudaError_t fault = fault_in(kernel, launch)) {
    error() = fault;
    return;
  }
  static std::mutex one_launch_at_a_time;  // tests have threads of their own
  const std::lock_guard lock(one_launch_at_a_time);
  static_shared().clear();
  for (uint32_t z = 0; z < launch.grid.z; ++z)
    for (uint32_t y = 0; y < launch.grid.y; ++y)
      for (uint32_t x = 0; x < launch.grid.x; ++x) {
        block().run(launch, {x, y, z}, thread);
        size_t static_bytes = 0;
        for (const auto& [place, bytes] : static_shared()) static_bytes += bytes;
        if (launch.bytes > most_dynamic_bytes(kernel, static_bytes)) {
          error() = cudaErrorInvalidValue;
          return;
        }
      }
}

cudaError_t last_error() {
  return std::exchange(error(), cudaSuccess);
}

cudaError_t get_device(int* device) {
  *device = 0;
  return cudaSuccess;
}

cudaError_t device_attribute(int* value, cudaDeviceAttr attribute, int) {
  if (attribute != cudaDevAttrMaxSharedMemoryPerBlockOptin) return cudaErrorInvalidValue;
  *value = most_bytes();
  return cudaSuccess;
}

cudaError_t set_attribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || value > most_bytes())
    return cudaErrorInvalidValue;
  int& allowed = allowed_bytes()[kernel];
  if (value < allowed) return cudaErrorInvalidValue;
  allowed = value;
  return cudaSuccess;
}

}  // namespace espalier::emulate
