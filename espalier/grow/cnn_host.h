// The host network of every lane: blocks of convolution, batch norm and ReLU, the first of them pooled, then
// a global average pool and a linear classifier; with slots between them where seeds grow.
//
// Kept true:
// - Lanes never mix, and lane i at birth depends on (seed, i, parameter) alone.
// - A slot's boundary lies before its seeds: a segment that ends at a slot leaves its seeds out, one that
//   begins there grows them first. So the composition over any chain of boundaries is the plain forward pass,
//   bit for bit.
// - The layout is looked at where a tensor comes in (lane_door.h) and nowhere else.
// - Norm, ReLU and pooling are one pass wherever nothing stands between them.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/grow/host_shape.h"
#include "espalier/lanes/lane_conv.h"
#include "espalier/lanes/lane_door.h"
#include "espalier/lanes/lane_linear.h"
#include "espalier/lanes/lane_norm.h"
#include "espalier/lanes/lane_parameter.h"

namespace espalier::grow {

// What grows in the slots, as a forward pass of the host meets it.
class SlotGrowth {
 public:
  virtual ~SlotGrowth() = default;
  // Whether any lane holds a seed there. slot: action index.
  virtual bool holds(int64_t slot) const = 0;
  // h: [L,B,C,H,W] at the slot. Returns the same with the seeds blended in.
  virtual at::Tensor grow(int64_t slot, const at::Tensor& h) = 0;
};

struct HostContext {
  lanes::Mode mode = lanes::Mode::kTrain;
  at::Tensor mask;               // [L,B] bool, true where there is a sample; undefined: all are
  SlotGrowth* growth = nullptr;  // none: the bare host
};

// Logits, [L,B,num_classes] each.
struct HostBranches {
  at::Tensor whole;
  std::vector<at::Tensor> without;  // one a slot that was asked about, in that order
};

inline constexpr std::string_view kHostInput = "input";  // the boundary before the first block

class CnnHost {
 public:
  // Initialised with options.seed. tensor_options: device and master type (f32, or f64 where that is computed
  // in); compute: the type of activations and of the convolutions' weights.
  CnnHost(const CnnHostOptions& options, const at::TensorOptions& tensor_options, at::ScalarType compute);
  CnnHost(const CnnHost&) = delete;
  CnnHost& operator=(const CnnHost&) = delete;

  // x: [L,B,C,H,W], see lane_door.h. Returns the logits, [L,B,num_classes] of the master type.
  at::Tensor forward(const at::Tensor& x, const HostContext& context = {});
  // From a boundary (kHostInput or a slot) to that of a slot further on. x: the stack at `from`.
  at::Tensor forward_to_segment(std::string_view slot, const at::Tensor& x,
                                std::string_view from = kHostInput, const HostContext& context = {});
  // From a slot's boundary to the logits.
  at::Tensor forward_from_segment(std::string_view slot, const at::Tensor& x,
                                  const HostContext& context = {});

  // To the logits, and beside them with nothing grown in each of these slots: a branch leaves where its slot
  // is, so that what comes before is done once. slots: action indices.
  HostBranches forward_without_each(const at::Tensor& x, std::span<const int64_t> slots,
                                    const HostContext& context);

  const CnnHostOptions& options() const { return options_; }
  const std::vector<SlotSpec>& slots() const { return slots_; }  // by action index
  int64_t slot_index(std::string_view name) const;               // refuses an unknown one, with the list

  // "block0.conv.weight", "block0.norm.weight", ..., "classifier.bias".
  std::vector<lanes::NamedParameter> parameters();
  // What a snapshot keeps besides: "block0.norm.running_mean", ..., [L,C] each.
  struct Buffer {
    std::string name;
    at::Tensor tensor;
  };
  std::vector<Buffer> buffers() const;

  // As at birth, one lane or all: torch's own defaults, and fresh running statistics.
  void initialise(uint64_t seed);
  void initialise_lane(int64_t lane, uint64_t seed);

  // Moves the weights; a step that was captured before has to be captured again.
  void set_memory_format(MemoryFormat format);

  int64_t door_conversions() const { return door_.num_conversions(); }

 private:
  // The plan: every step of the forward pass in its order. A boundary is the place of its slot's step.
  struct Step {
    enum class Kind { kBlock, kSlot, kPool, kHead } kind;
    int64_t index = 0;  // of the block, or the slot's action index
  };
  struct Block {
    lanes::LaneConv2d conv;
    lanes::LaneBatchNorm2d norm;
    std::string name;  // "block0"
  };

  size_t place_of(std::string_view boundary) const;
  at::Tensor walk(at::Tensor h, size_t begin, size_t end, const HostContext& context);
  at::Tensor enter(const at::Tensor& x, size_t place);
  void initialise_lanes(int64_t first, int64_t count, uint64_t seed);

  CnnHostOptions options_;
  std::vector<SlotSpec> slots_;
  std::vector<Step> plan_;
  std::vector<size_t> slot_places_;  // of each slot, by action index, in plan_
  std::vector<Block> blocks_;
  std::unique_ptr<lanes::LaneLinear> classifier_;
  lanes::LaneDoor door_;
};

}  // namespace espalier::grow
