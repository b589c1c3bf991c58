// How ranks notice that one of them died, hangs or cannot be reached: each writes a count into c10d's store
// every so often, from a thread of its own, and looks at that of the rank after it. So a rank that loads,
// captures or saves for minutes is alive, and one that was killed, stopped or cut off is not.
//
// Kept true: whoever finds a fault writes one sentence that names the rank into the store, and all ranks end
// with that sentence, within the limit and a few beats; a store that does not answer is a fault of the rank
// that keeps it; a process that was itself stopped for a while blames nobody else for the time it missed
// (beats are counted, not seconds). Three requests per rank and beat, whatever the number of ranks.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
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
  // Called once, by the thread that watches, with the sentence; a program ends there. Where it returns, the
  // call that was waiting for a lost rank throws.
  std::function<void(const std::string& sentence)> ended;
};

class Heartbeat {
 public:
  // Returns when every rank's first beat has come. store: a connection of its own.
  Heartbeat(c10::intrusive_ptr<c10d::Store> store, HeartbeatOptions options);
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

  void beat_until_stopped();
  void one_beat();
  void look_for_silent_ranks();
  void watch_the_store();
  bool is_stopped_within(Duration time);
  void stop();
  std::string publish(const std::string& sentence);
  enum class Store { kAnswers, kIsGone };
  void end(const std::string& sentence, Store store = Store::kAnswers);
  std::string name_of(int64_t rank);
  std::string missed(int64_t rank, const std::string& how);
  void wait_for_the_others(const std::string& key, Duration longest);

  c10::intrusive_ptr<c10d::Store> store_;
  HeartbeatOptions options_;
  Duration interval_;
  std::string neighbour_beat_;
  int64_t neighbour_silence_ = 0;  // beats
  int64_t beats_ = 0;
  std::vector<std::string> seen_;   // [size] beats of all ranks, once a collective failed
  std::vector<int64_t> silences_;   // [size] beats
  int64_t beats_in_doubt_ = 0;      // since a collective failed
  std::atomic<int64_t> rounds_{0};  // beats that the store answered
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopped_ = false;
  std::string collective_error_;  // empty: none failed
  std::string sentence_;          // empty: all is well
  std::thread beats_thread_;
  std::thread store_thread_;  // last: both use the others
};

}  // namespace espalier::ranks
