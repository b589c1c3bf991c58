// Writes checkpoints without stopping the device: tensors are copied to pinned host memory behind the work
// that is queued, and a thread of its own waits for that and writes.
//
// Kept true: one at a time; what is written is the state when save() was called, whatever is trained
// meanwhile.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <future>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/run/files/checkpoint_folder.h"

namespace espalier::run {

struct SavedCheckpoint {
  std::string name;
  int64_t bytes = 0;
  double stall_ms = 0;       // that the host was held up; the device only copies
  double write_seconds = 0;  // in the background
  std::string error;         // empty: it is on the disk
};

class CheckpointWriter {
 public:
  explicit CheckpointWriter(CheckpointFolder folder) : folder_(std::move(folder)) {}
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  bool is_busy() const;

  // Waits for the one before. before_write: called by the thread, before anything is written; after_write:
  // when it is on the disk. Both may throw, which makes the checkpoint an error.
  struct Request {
    std::string name;
    std::vector<std::pair<std::string, at::Tensor>> tensors;
    nlohmann::ordered_json manifest;
    std::function<void()> before_write;
    std::function<void()> after_write;
    double waited_ms = 0;  // that the caller waited already: part of the stall
  };
  void save(Request request);

  // What became of the last one, once; none while it is under way, or where there is nothing to tell.
  std::optional<SavedCheckpoint> take_outcome();
  void wait();  // until it is done

 private:
  CheckpointFolder folder_;
  at::Tensor buffer_;  // [bytes] u8, pinned where there is a GPU
  std::future<SavedCheckpoint> pending_;
};

}  // namespace espalier::run
