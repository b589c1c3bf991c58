// The processes of a job: which one this is, how many there are, and the few collectives that a job needs.
//
// Kept true: a world without a group is of one rank, does nothing and needs no Python; every collective is
// called by all ranks in the same order; none has a time limit of its own, since a rank may load or save for
// as long as it likes: who is lost is the heartbeat's matter (heartbeat.h), which ends the run with a
// sentence that names the rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace at {
class Tensor;
}

namespace espalier::ranks {

using Bytes = std::vector<std::byte>;

// How this process came to the others.
struct Membership {
  std::string group;       // the name by which c10d's registry knows the group
  int64_t local_rank = 0;  // on this machine
  double limit_seconds = 60;
  std::string store_address;                               // "host:port", for sentences
  bool agent_keeps_store = false;                          // torchrun's agent does, and not rank 0
  std::function<void(const std::string& sentence)> ended;  // a rank was lost: see heartbeat.h
};

class World {
 public:
  static World& alone();

  World();                                       // one process
  explicit World(const Membership& membership);  // all of the group; returns when its ranks are there
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  int64_t local_rank() const { return local_rank_; }
  // Whether there is no group. One of a single rank sends its messages like any other: it shows a backend
  // where there is but one device for it.
  bool is_alone() const { return group_ == nullptr; }
  bool leads() const { return rank_ == 0; }  // rank 0 decides, writes and speaks

  // What every rank gives, at rank 0, by rank; nothing elsewhere.
  std::vector<Bytes> gather(std::span<const std::byte> own);
  std::vector<std::string> gather(std::string_view own);
  // The same at every rank.
  std::vector<std::string> all_gather(std::string_view own);
  // What rank 0 has, at every rank.
  void broadcast(Bytes& bytes);
  void broadcast(std::string& text);
  // The same of a length that every rank knows.
  void broadcast(std::span<std::byte> bytes);

  int64_t largest(int64_t own);
  int64_t sum(int64_t own);

  // Dense tensors, alike at all ranks, on any device. The sum is in place, and the same bits at every rank.
  void sum_(const at::Tensor& values);
  // The same, under way while other work is done: what is returned waits for it, and `values` is not to be
  // touched before.
  [[nodiscard]] std::function<void()> begin_sum_(const at::Tensor& values);
  // What rank 0 has, at every rank.
  void broadcast_(const at::Tensor& values);

  // What this rank sent and received so far, lengths included.
  int64_t bytes_moved() const { return bytes_moved_; }

  // At the end of a job that all ranks came to: nobody is missed from here on.
  void finish();
  // Instead of finish(), where this rank fails: the others end too. Returns whether the reason is news.
  bool tell_failure(const std::string& reason);

 private:
  struct Group;

  std::vector<int64_t> lengths_of_all(int64_t own);

  std::unique_ptr<Group> group_;  // none: alone
  int64_t rank_ = 0;
  int64_t size_ = 1;
  int64_t local_rank_ = 0;
  int64_t bytes_moved_ = 0;
};

}  // namespace espalier::ranks
