// Multi-stream residual networks: S independent streams and one integrated path that all of them feed at
// every layer; the classifier reads the integrated path alone.
//
// Kept true:
// - Streams never see each other, nor the integrated path: what a stream makes depends on its own input
// alone.
// - A blanked sample's stream is zero at every layer and counts in no statistics; the integrated path always
//   uses all samples. A stream that is left a single value per channel is normalised as in evaluation.
// - Weights are channels-last from construction on; a foreign input is converted once, at the entry.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/lanes/entry.h"
#include "espalier/lanes/head/linear.h"
#include "espalier/lanes/norm/synced.h"
#include "espalier/lanes/parameter.h"
#include "espalier/linet/block.h"
#include "espalier/linet/shape.h"

namespace espalier::linet {

struct LinetContext {
  lanes::Mode mode = lanes::Mode::kTrain;
  at::Tensor keep;     // [S,B] bool, false: that sample's stream is blanked; undefined: none is
  at::Tensor dropout;  // [1,B,F] factors for the pooled features; undefined: none
  std::vector<at::Tensor>* contributions = nullptr;  // see PathContext
  std::string contributions_of;
  // Training on a batch that several processes share out: adds their sums up, so that statistics are of the
  // whole batch. Empty: statistics are of the batch that is here.
  lanes::SumOverAll sum_over_all;
  // [S+1] f64, or undefined: gets 1 more for every norm of a path that was left a single value per channel by
  // `keep`, and so used its running statistics.
  at::Tensor fallbacks;
};

struct LinetOutput {
  at::Tensor logits;    // [1,B,num_classes] of the master type
  at::Tensor features;  // [S+1,B,F] pooled: the streams', then the integrated path's
};

// One tensor as it is known outside, per stream: a slice of a stacked one.
struct StreamTensor {
  std::string name;                           // "layer1.0.conv1.streams.2.weight"
  lanes::LaneParameter* parameter = nullptr;  // none: a buffer
  at::Tensor buffer;                          // [L,...] or [1]; undefined for a parameter
  int64_t lane = 0;

  at::Tensor value() const;     // without the lane axis; a view
  at::Tensor gradient() const;  // for a parameter
};

// Parameters whose lanes belong to the same paths: what one optimiser updates.
struct PathGroup {
  std::vector<lanes::LaneParameter*> parameters;
  std::vector<int64_t> paths;  // [L]: the stream that each lane belongs to, S: the integrated path
};

class Linet {
 public:
  // Initialised with shape.seed. tensor_options: device and master type; compute: of activations and filters.
  Linet(const LinetShape& shape, const at::TensorOptions& tensor_options, at::ScalarType compute);
  Linet(const Linet&) = delete;
  Linet& operator=(const Linet&) = delete;

  // x: S x [1,B,C_i,H,W], of one batch and size.
  LinetOutput forward(at::TensorList x, const LinetContext& context = {});

  // One stream alone: its pooled features, [1,B,F]. In training its statistics move, and no other's.
  at::Tensor forward_stream(int64_t stream, const at::Tensor& x, lanes::Mode mode);

  // Refuses, in one sentence, batches and images in whose training a norm would see a single value per
  // channel. flag: what the batch is called there, "--batch".
  static void check_training(const LinetShape& shape, int64_t batch, int64_t height, int64_t width,
                             std::string_view flag);

  const LinetShape& shape() const { return shape_; }
  int64_t num_streams() const { return shape_.num_streams(); }

  std::vector<lanes::NamedParameter> parameters();  // stacked: "layer1.0.conv1.weight", ...
  std::vector<PathGroup> groups();
  // What a step changes besides, stacked: "bn1.running_mean", ..., and the number of training batches.
  std::vector<std::pair<std::string, at::Tensor>> named_buffers();
  // Every parameter and buffer, as a PyTorch module of the same network names and shapes them.
  std::vector<StreamTensor> stream_tensors();
  int64_t num_parameters();

  void initialise(uint64_t seed);
  // Inputs so far that had to be brought to the network's type and layout: for programs that feed it
  // themselves, 0 where theirs are right.
  int64_t entry_conversions() const;

 private:
  std::vector<LiUnit*> units();
  at::Tensor enter(int64_t stream, const at::Tensor& x);

  LinetShape shape_;
  std::unique_ptr<LiUnit> stem_;
  std::vector<std::unique_ptr<LiBlock>> blocks_;
  std::unique_ptr<lanes::LaneLinear> classifier_;
  at::Tensor num_batches_;  // [1] i64
  std::vector<lanes::LaneEntry> entries_;
};

}  // namespace espalier::linet
