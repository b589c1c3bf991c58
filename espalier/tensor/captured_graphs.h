// Runs a step as a captured CUDA graph: eagerly at first, captured once it comes again, then replayed.
//
// Kept true:
// - A run is one step, whichever way it is done. The eager one makes what is made at first use (plans,
//   handles, workspaces), on the stream that is captured later; capturing executes nothing and waits for
//   nobody.
// - A step is captured as a whole or not at all: what waits for the device, or reads it, is an error.
// - Graphs share one pool of memory, which is safe while they run one after the other and leave nothing
//   there that a later one reads.
// On the CPU, and where graphs are not wanted, the step just runs.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>

namespace espalier {

enum class Graphs { kOff, kOn };

// Memory that captured graphs of one device may share.
class GraphPool;

// What came on top of replays.
struct GraphWork {
  int64_t captures = 0;
  double capture_seconds = 0;  // on the host
  int64_t eager = 0;           // runs of keys that had no graph yet

  GraphWork& operator+=(const GraphWork& other);
  GraphWork& operator-=(const GraphWork& other);
};

class StepGraphs {
 public:
  struct Options {
    c10::Device device = c10::kCPU;
    Graphs graphs = Graphs::kOn;  // off on the CPU anyway
    int64_t capacity = 8;         // graphs kept; the one that was not used for longest goes first
    // Runs of a key before it is captured, at least 1. A capture costs the host about what an eager run does:
    // so whoever captures at the second use pays at most about twice what the best choice would have cost,
    // however often the key comes.
    int64_t eager_runs = 1;
    std::shared_ptr<GraphPool> pool = nullptr;  // another one's graphs(), else its own
  };
  explicit StepGraphs(const Options& options);
  ~StepGraphs();

  // Runs the body once. key: all that the captured body depends on. A key whose graph went starts over.
  void run(const std::string& key, const std::function<void()>& body);

  bool is_capturing() const { return options_.graphs == Graphs::kOn; }
  const GraphWork& work() const { return work_; }  // so far
  int64_t num_kept() const { return static_cast<int64_t>(kept_.size()); }
  const std::shared_ptr<GraphPool>& pool() const { return options_.pool; }

 private:
  struct Captured;

  bool is_due(const std::string& key);
  void run_eagerly(const std::function<void()>& body);
  void capture(const std::string& key, const std::function<void()>& body);

  Options options_;
  std::list<Captured> kept_;             // the last used first
  std::map<std::string, int64_t> seen_;  // eager runs of keys that have no graph
  GraphWork work_;
};

}  // namespace espalier
