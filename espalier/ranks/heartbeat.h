// How ranks notice that one of them died, hangs or cannot be reached: each writes a count into c10d's store
// every so often, from a thread of its own, and looks at that of the rank after it. So a rank that loads,
// captures or saves for minutes is alive, and one that was killed, stopped or cut off is not.
//
// Kept true: whoever finds a fault writes one sentence that names the rank into the store, and all ranks end
// with that sentence, within the limit and a few beats; a store that does not answer is a fault of the rank
// that keeps it, from the first call to the last, since c10d waits for some answers for ever; a process that
// was itself stopped for a while blames nobody else for the time it missed (beats are counted, not seconds).
// Three requests per rank and beat, whatever the number of ranks.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace c10d {
class Store;
}

namespace espalier::ranks {

struct HeartbeatOptions {
  int64_t rank = 0;
  int64_t size = 1;
  std::chrono::milliseconds limit{60'000};
  std::string store_keeper;  // who is to blame where the store does not answer: "rank 0, which keeps ..."
  bool keeps_store = false;  // this process does
  // Called at most once, by a thread that watches, with the sentence; a program ends there. Where it returns,
  // the call that was waiting for a lost rank throws.
  std::function<void(const std::string& sentence)> ended;
};

class Heartbeat {
 public:
  // Returns when every rank's first beat has come, or throws the sentence that says whose did not. Makes a
  // connection of its own to `store`.
  Heartbeat(const c10::intrusive_ptr<c10d::Store>& store, HeartbeatOptions options);
  ~Heartbeat();
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

  // A collective failed: waits until it is known whose fault that is, and ends with that sentence.
  [[noreturn]] void collective_failed(const std::string& error);

  // All ranks have done their work: nobody is missed from here on. Returns when the store may go.
  void finish();
  // This rank ends early, for a reason of its own: the others end too, and say it. Returns whether the reason
  // is news to the run, and not one that another rank gave in the same words.
  bool tell_failure(const std::string& reason);

 private:
  using Duration = std::chrono::milliseconds;
  // While it leaves, a rank beats no more, and has its last words with the store, which is still watched.
  enum class Phase { kBeats, kLeaves, kIsOver };

  void meet(const c10::intrusive_ptr<c10d::Store>& store);
  bool has_come(int64_t rank);
  void beat_until_stopped();
  void one_beat();
  void look_for_silent_ranks();
  void watch_the_store();
  bool is_within(Duration time, Phase phase);
  bool leave(const std::string& sentence);
  void be_over();
  void stop();
  std::string publish(const std::string& sentence);
  void hand_over(const std::string& key, Duration longest);
  void tell_that_it_was_read();
  void end(const std::string& sentence);
  std::string store_is_gone(const std::exception& error) const;
  std::string name_of(int64_t rank);
  std::string missed(int64_t rank, const std::string& how);

  c10::intrusive_ptr<c10d::Store> store_;
  HeartbeatOptions options_;
  Duration interval_;
  std::string neighbour_beat_;
  int64_t neighbour_silence_ = 0;  // beats
  int64_t beats_ = 0;
  std::vector<std::string> seen_;    // [size] beats of all ranks, once a collective failed
  std::vector<int64_t> silences_;    // [size] beats
  int64_t beats_in_doubt_ = 0;       // since a collective failed
  std::atomic<int64_t> answers_{0};  // of the store: counted so that its silence is noticed
  std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kBeats;
  std::string collective_error_;  // empty: none failed
  std::string sentence_;          // with which this rank ends; empty: all is well
  std::thread beats_thread_;
  std::thread store_thread_;  // last: both use the others
};

}  // namespace espalier::ranks
