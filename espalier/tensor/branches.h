// Work that may overlap: on CUDA every branch but the first has a stream of its own, and where the caller's
// stream is captured, the branches are parallel in the graph. Elsewhere they run one after the other.
//
// Kept true: a branch begins behind all that the caller's stream had, and what that stream gets after join()
// begins behind all branches. Autograd takes the backward passes to the same streams, by itself.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

namespace espalier {

class Branches {
 public:
  // Beyond so many, branches share streams.
  static constexpr int64_t kMost = 8;

  Branches(at::Device device, int64_t count);
  Branches(const Branches&) = delete;
  Branches& operator=(const Branches&) = delete;

  // The next branch. input: of the caller's stream; its memory is not handed on before the branch is done
  // with it.
  void run(const at::Tensor& input, const std::function<void()>& body);
  // After the last one.
  void join();

 private:
  at::Device device_;
  int64_t num_streams_;  // besides the caller's; 0: one branch after the other
  int64_t num_begun_ = 0;
};

}  // namespace espalier
