// Runs a step as a captured CUDA graph: captured once for everything it depends on, then replayed.
//
// Kept true:
// - Capturing trains nothing: the step warms up on the real tensors, which are put back afterwards.
// - A step is captured as a whole or not at all: what waits for the device, or reads it, is an error.
// - Graphs share one pool of memory, which is safe while they run one after the other and leave nothing
//   there that a later one reads.
// On the CPU, and where graphs are not wanted, the step just runs.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <vector>

namespace espalier::train {

enum class Graphs { kOff, kOn };

// Memory that captured graphs of one device may share.
class GraphPool;

class StepGraphs {
 public:
  struct Options {
    at::Device device = at::kCPU;
    Graphs graphs = Graphs::kOn;  // off on the CPU anyway
    int64_t capacity = 8;         // graphs kept; the one that was not used for longest goes first
    std::shared_ptr<GraphPool> pool = nullptr;  // of another one's graphs(); none: its own
  };
  explicit StepGraphs(const Options& options);
  ~StepGraphs();

  // Runs the body once. key: all that the captured body depends on. state: every tensor that the body changes
  // and that a later step reads; asked for before a capture only.
  void run(const std::string& key, const std::function<void()>& body,
           const std::function<std::vector<at::Tensor>()>& state);

  void clear();  // addresses have changed

  bool is_capturing() const { return options_.graphs == Graphs::kOn; }
  int64_t num_captures() const { return num_captures_; }
  double capture_seconds() const { return capture_seconds_; }  // of all of them, warm-up included
  int64_t num_kept() const { return static_cast<int64_t>(kept_.size()); }
  const std::shared_ptr<GraphPool>& pool() const { return options_.pool; }

 private:
  struct Captured;

  void capture(const std::string& key, const std::function<void()>& body,
               const std::vector<at::Tensor>& state);

  Options options_;
  std::list<Captured> kept_;  // the last used first
  int64_t num_captures_ = 0;
  double capture_seconds_ = 0;
};

}  // namespace espalier::train
