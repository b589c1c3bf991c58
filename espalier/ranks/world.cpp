#include "espalier/ranks/world.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "espalier/core/error.h"
#include "espalier/ranks/heartbeat.h"

namespace espalier::ranks {
namespace {

// In effect none: c10d takes no "for ever".
constexpr std::chrono::milliseconds kNoLimit = std::chrono::hours(24 * 30);

std::span<const std::byte> bytes_in(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

std::string text_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

struct World::Group {
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  at::Device carrier = at::kCPU;  // where messages lie when they are sent
  std::unique_ptr<Heartbeat> heartbeat;

  at::Tensor tensor_of(std::span<const std::byte> bytes, int64_t length) const {
    at::Tensor padded = at::zeros({length}, at::kByte);
    if (!bytes.empty()) std::memcpy(padded.mutable_data_ptr(), bytes.data(), bytes.size());
    return padded.to(carrier);
  }

  static void copy_out(const at::Tensor& from, std::span<std::byte> to) {
    if (to.empty()) return;
    const at::Tensor here = from.cpu();
    std::memcpy(to.data(), here.const_data_ptr(), to.size());
  }

  // What fails there is a rank's fault, and the heartbeat says whose.
  template <class Work>
  auto guarded(const Work& work) {
    try {
      return work();
    } catch (const std::exception& error) {
      heartbeat->collective_failed(error.what());
    }
  }

  template <class Start>
  void wait_for(const Start& start) {
    guarded([&] { start()->wait(); });
  }

  // Where a backend can take it: a group for GPUs alone takes nothing from host memory.
  at::Tensor on_carrier(const at::Tensor& values) const {
    TORCH_CHECK(values.is_contiguous(), "World: values: want a dense tensor, got ", values.sizes(),
                " with strides ", values.strides());
    return values.is_cpu() ? values.to(carrier) : values;
  }

  // Takes one number per rank.
  int64_t reduced(int64_t own, c10d::ReduceOp::RedOpType op) {
    std::vector<at::Tensor> values{at::full({1}, own, at::kLong).to(carrier)};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    options.timeout = kNoLimit;
    wait_for([&] { return group->allreduce(values, options); });
    return values[0].item<int64_t>();
  }

  std::vector<at::Tensor> gathered_everywhere(const at::Tensor& own) {
    std::vector<at::Tensor> inputs{own};
    std::vector<std::vector<at::Tensor>> outputs(1);
    for (int64_t rank = 0; rank < group->getSize(); ++rank) outputs[0].push_back(at::empty_like(own));
    c10d::AllgatherOptions options;
    options.timeout = kNoLimit;
    wait_for([&] { return group->allgather(outputs, inputs, options); });
    return outputs[0];
  }
};

World& World::alone() {
  static World world;
  return world;
}

World::World() = default;
World::~World() = default;

World::World(const Membership& membership) : group_(std::make_unique<Group>()) {
  group_->group = c10d::resolve_process_group(membership.group);
  rank_ = group_->group->getRank();
  size_ = group_->group->getSize();
  local_rank_ = membership.local_rank;
  try {
    group_->group->getBackend(c10::DeviceType::CPU);
  } catch (const std::exception&) {
    group_->carrier = at::Device(at::kCUDA, -1);  // the current one, which Python chose
  }
  // NCCL passes over the limit of an operation for that of its group, which was made for the ranks to meet:
  // its watchdog would end all of them where rank 0 saves for longer.
  try {
    group_->group->getBackend(c10::DeviceType::CUDA)->setTimeout(kNoLimit);
  } catch (const c10::Error&) {
    // It has none for GPUs, or one that knows no such limit.
  }
  const bool keeps_store = leads() && !membership.agent_keeps_store;
  group_->heartbeat = std::make_unique<Heartbeat>(
      group_->group->getStore(),
      HeartbeatOptions{
          .rank = rank_,
          .size = size_,
          .limit = std::chrono::milliseconds(static_cast<int64_t>(1000 * membership.limit_seconds)),
          .store_keeper = fmt::format("{}, which keeps the store of this run at {},",
                                      membership.agent_keeps_store ? "torchrun's agent" : "rank 0",
                                      membership.store_address),
          .keeps_store = keeps_store,
          .ended = membership.ended});
}

std::vector<int64_t> World::lengths_of_all(int64_t own) {
  std::vector<int64_t> lengths;
  for (const at::Tensor& length :
       group_->gathered_everywhere(at::full({1}, own, at::kLong).to(group_->carrier)))
    lengths.push_back(length.item<int64_t>());
  bytes_moved_ += size_ * static_cast<int64_t>(sizeof(int64_t));
  return lengths;
}

std::vector<Bytes> World::gather(std::span<const std::byte> own) {
  if (is_alone()) return {Bytes(own.begin(), own.end())};
  const std::vector<int64_t> lengths = lengths_of_all(std::ssize(own));
  const int64_t longest = std::ranges::max(lengths);
  std::vector<Bytes> all(leads() ? static_cast<size_t>(size_) : 0);
  if (longest == 0) return all;
  std::vector<at::Tensor> inputs{group_->tensor_of(own, longest)};
  std::vector<std::vector<at::Tensor>> outputs;
  if (leads()) {
    outputs.emplace_back();
    for (int64_t rank = 0; rank < size_; ++rank) outputs[0].push_back(at::empty_like(inputs[0]));
  }
  c10d::GatherOptions options;
  options.rootRank = 0;
  options.timeout = kNoLimit;
  group_->wait_for([&] { return group_->group->gather(outputs, inputs, options); });
  bytes_moved_ += leads() ? (size_ - 1) * longest : longest;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    all[rank].resize(static_cast<size_t>(lengths[rank]));
    Group::copy_out(outputs[0][rank], all[rank]);
  }
  return all;
}

std::vector<std::string> World::gather(std::string_view own) {
  std::vector<std::string> all;
  for (const Bytes& bytes : gather(bytes_in(own))) all.push_back(text_in(bytes));
  return all;
}

std::vector<std::string> World::all_gather(std::string_view own) {
  if (is_alone()) return {std::string(own)};
  const std::vector<int64_t> lengths = lengths_of_all(std::ssize(own));
  const int64_t longest = std::ranges::max(lengths);
  const std::vector<at::Tensor> gathered =
      group_->gathered_everywhere(group_->tensor_of(bytes_in(own), std::max<int64_t>(longest, 1)));
  bytes_moved_ += size_ * longest;
  std::vector<std::string> all;
  for (size_t rank = 0; rank < gathered.size(); ++rank) {
    Bytes bytes(static_cast<size_t>(lengths[rank]));
    Group::copy_out(gathered[rank], bytes);
    all.push_back(text_in(bytes));
  }
  return all;
}

void World::broadcast(std::span<std::byte> bytes) {
  if (is_alone() || bytes.empty()) return;
  std::vector<at::Tensor> values{group_->tensor_of(bytes, std::ssize(bytes))};
  c10d::BroadcastOptions options;
  options.rootRank = 0;
  options.timeout = kNoLimit;
  group_->wait_for([&] { return group_->group->broadcast(values, options); });
  bytes_moved_ += leads() ? (size_ - 1) * std::ssize(bytes) : std::ssize(bytes);
  if (!leads()) Group::copy_out(values[0], bytes);
}

void World::broadcast(Bytes& bytes) {
  if (is_alone()) return;
  auto length = static_cast<int64_t>(bytes.size());
  broadcast(std::as_writable_bytes(std::span(&length, 1)));
  bytes.resize(static_cast<size_t>(length));
  broadcast(std::span<std::byte>(bytes));
}

void World::broadcast(std::string& text) {
  const std::span<const std::byte> own = bytes_in(text);
  Bytes bytes(own.begin(), own.end());
  broadcast(bytes);
  text = text_in(bytes);
}

int64_t World::largest(int64_t own) {
  if (is_alone()) return own;
  bytes_moved_ += static_cast<int64_t>(sizeof(own));
  return group_->reduced(own, c10d::ReduceOp::MAX);
}

int64_t World::sum(int64_t own) {
  if (is_alone()) return own;
  bytes_moved_ += static_cast<int64_t>(sizeof(own));
  return group_->reduced(own, c10d::ReduceOp::SUM);
}

void World::sum_(const at::Tensor& values) {
  begin_sum_(values)();
}

std::function<void()> World::begin_sum_(const at::Tensor& values) {
  if (is_alone() || values.numel() == 0) return [] {};
  std::vector<at::Tensor> sent{group_->on_carrier(values)};
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::SUM;
  options.timeout = kNoLimit;
  // Around a ring each rank sends, and receives, all but one of `size` parts twice.
  bytes_moved_ += 4 * static_cast<int64_t>(values.nbytes()) * (size_ - 1) / size_;
  const auto work = group_->guarded([&] { return group_->group->allreduce(sent, options); });
  return [this, work, sum = sent[0], values] {
    group_->guarded([&] { work->wait(); });
    if (!sum.is_same(values)) values.copy_(sum);
  };
}

void World::broadcast_(const at::Tensor& values) {
  if (is_alone() || values.numel() == 0) return;
  std::vector<at::Tensor> sent{group_->on_carrier(values)};
  c10d::BroadcastOptions options;
  options.rootRank = 0;
  options.timeout = kNoLimit;
  group_->wait_for([&] { return group_->group->broadcast(sent, options); });
  const auto bytes = static_cast<int64_t>(values.nbytes());
  bytes_moved_ += leads() ? (size_ - 1) * bytes : bytes;
  if (!sent[0].is_same(values)) values.copy_(sent[0]);
}

void World::finish() {
  if (is_alone()) return;
  sum(0);  // nobody leaves before all are here
  group_->heartbeat->finish();
}

bool World::tell_failure(const std::string& reason) {
  return is_alone() || group_->heartbeat->tell_failure(reason);
}

}  // namespace espalier::ranks
