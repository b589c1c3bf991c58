// The host network of every lane: blocks of convolution, batch norm and ReLU, the first of them pooled, then
// a global average pool and a linear classifier; with slots between them where seeds grow.
//
// Kept true:
// - What every host keeps (interface.h).
// - The layout is looked at where a tensor comes in (lanes/entry.h) and nowhere else.
// - Norm, ReLU and pooling are one pass wherever nothing stands between them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "espalier/grow/host/interface.h"
#include "espalier/grow/host/shape.h"
#include "espalier/lanes/conv/layer.h"
#include "espalier/lanes/head/linear.h"
#include "espalier/lanes/norm/layer.h"
#include "espalier/lanes/parameter.h"

namespace espalier::grow {

class CnnHost final : public Host {
 public:
  // Initialised with options.seed; its parameters are "block0.conv.weight", "block0.norm.weight", ...,
  // "classifier.bias". tensor_options: device and master type (f32, or f64 where that is computed
  // in); compute: the type of activations and of the convolutions' weights.
  CnnHost(const CnnHostOptions& options, const at::TensorOptions& tensor_options, at::ScalarType compute);

  at::Tensor forward(const at::Tensor& x, const HostContext& context = {}) override;
  // A branch leaves where its slot is, so that what comes before is done once.
  HostBranches forward_without_each(const at::Tensor& x, std::span<const int64_t> slots,
                                    const HostContext& context) override;

  const CnnHostOptions& options() const { return options_; }

 private:
  // The plan: every step of the forward pass in its order.
  struct Step {
    enum class Kind { kBlock, kSlot, kPool, kHead } kind;
    int64_t index = 0;  // the block's, or the slot's action index
  };
  struct Block {
    lanes::LaneConv2d conv;
    lanes::LaneBatchNorm2d norm;
    std::string name;  // "block0"
  };

  at::Tensor walk(at::Tensor h, size_t begin, size_t end, const HostContext& context);

  CnnHostOptions options_;
  std::vector<Step> plan_;
  std::vector<Block> blocks_;
  std::unique_ptr<lanes::LaneLinear> classifier_;
};

// A host of this kind for whatever data a job has: lanes, image sizes, classes, layout and seed are the
// job's.
HostMaker cnn_host(const CnnHostOptions& options);

}  // namespace espalier::grow
