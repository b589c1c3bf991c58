// Ranks of a job as threads of one test: a group of c10d whose messages are copies in memory.
#pragma once

#include <ATen/core/ivalue.h>

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "espalier/ranks/world.h"

namespace espalier::testing {

// Where threads hand their tensors to each other.
class Meeting {
 public:
  explicit Meeting(size_t size) : given_(size) {}

  // What every thread gave, by rank.
  std::vector<at::Tensor> exchange(size_t rank, const at::Tensor& own) {
    std::unique_lock lock(mutex_);
    given_[rank] = own.clone();
    const int64_t round = round_;
    if (++arrived_ == given_.size()) {
      all_ = given_;
      arrived_ = 0;
      round_ += 1;
      changed_.notify_all();
    } else {
      // Ranks that came to different decisions would wait for each other for ever.
      changed_.wait_for(lock, std::chrono::seconds(60), [&] { return round_ != round || is_over_; });
      if (round_ == round) throw std::runtime_error("another rank failed, or did not come");
    }
    return all_;
  }
  void end() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<at::Tensor> given_, all_;
  size_t arrived_ = 0;
  int64_t round_ = 0;
  bool is_over_ = false;
};

class ThreadBackend : public c10d::Backend {
 public:
  ThreadBackend(std::shared_ptr<Meeting> meeting, int rank, int size)
      : c10d::Backend(rank, size), meeting_(std::move(meeting)) {}

  const std::string getBackendName() const override { return "threads"; }

  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    const std::vector<at::Tensor> all = exchange(tensors[0]);
    at::Tensor result = all[0].clone();
    for (size_t rank = 1; rank < all.size(); ++rank)
      result = options.reduceOp == c10d::ReduceOp::MAX ? at::maximum(result, all[rank]) : result + all[rank];
    tensors[0].copy_(result);
    return done();
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    tensors[0].copy_(exchange(tensors[0])[static_cast<size_t>(options.rootRank)]);
    return done();
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& /*options*/) override {
    const std::vector<at::Tensor> all = exchange(inputs[0]);
    for (size_t rank = 0; rank < all.size(); ++rank) outputs[0][rank].copy_(all[rank]);
    return done();
  }
  c10::intrusive_ptr<c10d::Work> gather(std::vector<std::vector<at::Tensor>>& outputs,
                                        std::vector<at::Tensor>& inputs,
                                        const c10d::GatherOptions& options) override {
    const std::vector<at::Tensor> all = exchange(inputs[0]);
    if (getRank() == options.rootRank)
      for (size_t rank = 0; rank < all.size(); ++rank) outputs[0][rank].copy_(all[rank]);
    return done();
  }

 private:
  std::vector<at::Tensor> exchange(const at::Tensor& own) {
    return meeting_->exchange(static_cast<size_t>(getRank()), own);
  }
  static c10::intrusive_ptr<c10d::Work> done() {
    const auto future = c10::make_intrusive<c10::ivalue::Future>(c10::NoneType::get());
    future->markCompleted();
    return c10d::Work::create_from_future(future);
  }

  std::shared_ptr<Meeting> meeting_;
  std::chrono::milliseconds timeout_{0};  // none was set
};

// Runs `rank` in so many threads, each with its world, and throws what the first of them threw.
inline void as_ranks(int size, const std::function<void(ranks::World& world)>& rank) {
  const auto meeting = std::make_shared<Meeting>(static_cast<size_t>(size));
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::exception_ptr> failures(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int number = 0; number < size; ++number)
    threads.emplace_back([&, number] {
      const std::string name = "threads/" + std::to_string(number);
      const auto group = c10::make_intrusive<c10d::ProcessGroup>(store, number, size);
      group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
                        c10::make_intrusive<ThreadBackend>(meeting, number, size));
      c10d::register_process_group(name, group);
      try {
        ranks::World world(ranks::Membership{.group = name, .store_address = "memory"});
        rank(world);
      } catch (...) {
        failures[static_cast<size_t>(number)] = std::current_exception();
        meeting->end();
      }
      c10d::unregister_process_group(name);
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures)
    if (failure) std::rethrow_exception(failure);
}

}  // namespace espalier::testing
