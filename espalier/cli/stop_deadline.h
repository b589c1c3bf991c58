// While it lives, a process that is told to stop ends within a given time, whatever it is computing: for jobs
// that have nothing to save, such as benchmarks, where a single call may take minutes. An orderly end that
// comes sooner is left alone.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace espalier::cli {

class StopDeadline {
 public:
  explicit StopDeadline(std::chrono::milliseconds longest);
  ~StopDeadline();
  StopDeadline(const StopDeadline&) = delete;
  StopDeadline& operator=(const StopDeadline&) = delete;

 private:
  bool is_over_within(std::chrono::milliseconds time);
  void watch(std::chrono::milliseconds longest);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace espalier::cli
