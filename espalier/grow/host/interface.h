// The network that every lane begins as, and what a stack of networks asks of it. CnnHost (cnn.h) is one; a
// program may bring its own (examples/own_host.cpp) and give it a name (registry.h).
//
// Kept true by every host:
// - Lanes never mix, and a lane at birth depends on (seed, lane's number in the job, parameter) alone.
// - At every slot that holds seeds a forward pass hands what is there to SlotGrowth::grow(), and goes on
//   with what comes back. It reads nothing on the CPU's side, so that a step can be captured.
// - Parameters and buffers stay where they are for the host's life.
// - Every batch norm comes from HostContext::norm(): where several processes share a batch, running
//   statistics are then the same in all of them and need no averaging.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "espalier/grow/host/frame.h"
#include "espalier/lanes/entry.h"
#include "espalier/lanes/norm/layer.h"
#include "espalier/lanes/norm/synced.h"
#include "espalier/lanes/parameter.h"

namespace espalier::grow {

// What grows in the slots, as a forward pass of the host meets it.
class SlotGrowth {
 public:
  virtual ~SlotGrowth() = default;
  // Whether any lane holds a seed there. slot: action index.
  virtual bool holds(int64_t slot) const = 0;
  // h: [L,B,C,H,W] at the slot. Returns the same with the seeds blended in. Hand h over (std::move) where it
  // is not needed any more: on CUDA the result then takes its place, and lanes without a seed there cost
  // nothing.
  virtual at::Tensor grow(int64_t slot, at::Tensor h) = 0;
  // [L] i64 on the lanes' device: negative where a lane holds no seed there; undefined: not told.
  virtual at::Tensor holders(int64_t slot) const = 0;
};

struct HostContext {
  lanes::Mode mode = lanes::Mode::kTrain;
  at::Tensor mask;               // [L,B] bool, true where there is a sample; undefined: all are
  SlotGrowth* growth = nullptr;  // none: the bare host
  // Training on a batch that several processes share out: adds their sums up, so that a batch norm has the
  // statistics of the whole batch. Empty: they are of the batch that is here.
  lanes::SumOverAll sum_over_all = {};

  // A batch norm of the host, as all of this asks for.
  at::Tensor norm(const lanes::LaneBatchNorm2d& layer, const at::Tensor& x,
                  lanes::Activation activation = lanes::Activation::kNone,
                  lanes::Pooling pooling = lanes::Pooling::kNone) const;
  // h [L,B,C,H,W] with what grows in the slot, or as it is. Hand it over, as SlotGrowth::grow() says.
  at::Tensor grow(int64_t slot, at::Tensor h) const;
};

// Logits, [L,B,num_classes] each.
struct HostBranches {
  at::Tensor whole;
  // One per slot that was asked about, in that order. Lanes that hold no seed there may have anything: for
  // them it would be the whole once more, and it is not computed.
  std::vector<at::Tensor> without;
};

// Writes the first values of all lanes. Parameters are named as Host::parameters() names them.
class HostInit {
 public:
  HostInit(uint64_t seed, const HostFrame& frame);

  void kaiming_uniform(const lanes::NamedParameter& weight) const;  // torch's default of weights
  // torch's default of a bias [L,K] that goes with such a weight.
  void uniform_like(const lanes::NamedParameter& bias, const lanes::LaneParameter& weight) const;
  void fill(const at::Tensor& stacked, double value) const;  // [L,...]: of a parameter or a buffer

 private:
  void draw(const lanes::NamedParameter& parameter, double bound) const;

  uint64_t seed_;
  const HostFrame& frame_;
};

// What a host is built from: options give device and master type (f32, or f64 where that is computed in),
// compute the type of activations and of the convolutions' weights.
struct HostBuild {
  HostFrame frame;
  at::TensorOptions options;
  at::ScalarType compute = at::kFloat;
};

class Host {
 public:
  struct Buffer {
    std::string name;
    at::Tensor tensor;
  };

  virtual ~Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // x: [L,B,C,H,W], see lanes/entry.h. Returns the logits, [L,B,num_classes] of the master type.
  virtual at::Tensor forward(const at::Tensor& x, const HostContext& context) = 0;
  // To the logits, and beside them with nothing grown in each of these slots (action indices). A host that
  // knows how its slots follow on each other does what comes before a slot once; this does every pass whole.
  virtual HostBranches forward_without_each(const at::Tensor& x, std::span<const int64_t> slots,
                                            const HostContext& context);

  // "block0.conv.weight", ...: in a fixed order, names are unique, pointers stay valid. Those of the layers
  // that were added, unless a host has others.
  virtual std::vector<lanes::NamedParameter> parameters() { return parameters_; }
  // What a snapshot keeps besides: "block0.norm.running_mean", ..., [L,...] each.
  virtual std::vector<Buffer> buffers() const { return buffers_; }

  // As at birth, all lanes.
  void initialise(uint64_t seed);

  const HostFrame& frame() const { return frame_; }
  const std::vector<SlotSpec>& slots() const { return slots_; }  // by action index
  int64_t slot_index(std::string_view name) const;               // refuses an unknown one, with the list
  int64_t num_parameters();                                      // per lane, before anything grew on it

  // Inputs so far that had to be brought to the host's type and layout: for programs that feed it themselves,
  // 0 where theirs are right.
  int64_t entry_conversions() const { return entry_.num_conversions(); }

 protected:
  Host(const HostBuild& build, std::vector<SlotSpec> slots);

  // A layer of the host (lanes.h), which stays where it is for the host's life: its parameters and running
  // statistics are the host's from here on, "name.weight", and in the frame's memory format. Call
  // initialise(frame().seed) when all are there.
  template <class Layer>
  void add(const std::string& name, Layer& layer) {
    add_parameters(name, layer.parameters());
    if constexpr (requires { layer.running_mean; }) {
      buffers_.push_back({name + ".running_mean", layer.running_mean});
      buffers_.push_back({name + ".running_var", layer.running_var});
    }
  }

  // Writes every parameter and buffer: torch's own defaults, and fresh running statistics, unless a host
  // begins otherwise. Refuses a parameter whose default is not known: besides weights and biases there is
  // none.
  virtual void write_first_values(const HostInit& init);

  // The network's own input as it is computed with: of its type and layout; see lanes/entry.h.
  at::Tensor enter(const at::Tensor& x);

 private:
  void add_parameters(const std::string& name, const std::vector<lanes::NamedParameter>& parameters);

  HostFrame frame_;
  std::vector<SlotSpec> slots_;
  lanes::LaneEntry entry_;
  std::vector<lanes::NamedParameter> parameters_;  // of the layers that were added
  std::vector<Buffer> buffers_;
};

using HostMaker = std::function<std::unique_ptr<Host>(const HostBuild&)>;

}  // namespace espalier::grow
