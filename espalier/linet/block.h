// A residual block of all paths: two 3x3 layers, or 1x1, 3x3 and 1x1, with the residual connection of every
// stream and of the integrated path, and a projection where shapes change.
//
// Kept true: norm, residual and ReLU are one operator; a blanked sample's stream stays zero.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "espalier/lanes/norm/layer.h"
#include "espalier/lanes/norm/synced.h"
#include "espalier/linet/conv.h"
#include "espalier/linet/shape.h"

namespace espalier::linet {

// What a forward pass is told. keep [S+1,B] bool, true where a sample's path is there; undefined: all are.
struct PathContext {
  lanes::Mode mode = lanes::Mode::kTrain;
  at::Tensor keep;
  // Where given, every layer whose name begins so adds what its streams gave to z, [S] each.
  std::vector<at::Tensor>* contributions = nullptr;
  std::string contributions_of;    // "layer4."; empty: all
  lanes::SumOverAll sum_over_all;  // see LinetContext
  at::Tensor fallbacks;            // [S+1] f64, or undefined; see LinetContext
};

// A layer and its norm. Names are those of their tensors outside: "layer1.0.conv1", "layer1.0.bn1".
struct LiUnit {
  LiUnit(const LiConvOptions& options, std::string conv_name, std::string norm_name,
         const at::TensorOptions& tensor_options, at::ScalarType compute);

  // norm(conv(x)), past a ReLU and a pool where these are wanted, or added to a residual and past a ReLU.
  at::Tensor forward(at::TensorList x, const PathContext& context, lanes::Activation activation,
                     lanes::Pooling pooling = lanes::Pooling::kNone) const;
  at::Tensor forward_residual(const at::Tensor& x, const at::Tensor& residual,
                              const PathContext& context) const;
  // One stream alone, [1,B,C,H,W]; residual may be undefined. Its statistics alone move.
  at::Tensor forward_stream(int64_t stream, const at::Tensor& x, const at::Tensor& residual,
                            lanes::Activation activation, lanes::Mode mode,
                            lanes::Pooling pooling = lanes::Pooling::kNone) const;

  LiConv conv;
  lanes::LaneBatchNorm2d norm;  // with S+1 lanes
  std::string conv_name;
  std::string norm_name;

 private:
  at::Tensor raw(at::TensorList x, const PathContext& context) const;
  lanes::BatchNormCall norm_call(const PathContext& context, lanes::Activation activation) const;
  at::Tensor normed(const at::Tensor& raw, const lanes::BatchNormCall& call,
                    const PathContext& context) const;
};

struct LiBlockOptions {
  BlockKind kind = BlockKind::kBasic;
  int64_t streams = 1;
  int64_t in_channels = 1;
  int64_t width = 1;
  int64_t stride = 1;
  std::string name;  // "layer1.0"
};

class LiBlock {
 public:
  LiBlock(const LiBlockOptions& options, const at::TensorOptions& tensor_options, at::ScalarType compute);

  at::Tensor forward(const at::Tensor& x, const PathContext& context) const;  // [S+1,B,C,H,W]
  at::Tensor forward_stream(int64_t stream, const at::Tensor& x, lanes::Mode mode) const;

  std::vector<LiUnit*> units();  // in the order of their names; the projection last
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::vector<LiUnit> units_;
  std::unique_ptr<LiUnit> shortcut_;  // none: the identity
};

}  // namespace espalier::linet
