#include "espalier/grow/host/interface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/text/utf8.h"
#include "espalier/lanes/active.h"
#include "espalier/lanes/init.h"

namespace espalier::grow {
namespace {

// The growth of a stack, with one slot left out.
class WithoutSlot final : public SlotGrowth {
 public:
  WithoutSlot(SlotGrowth* growth, int64_t slot) : growth_(growth), slot_(slot) {}

  bool holds(int64_t slot) const override {
    return growth_ != nullptr && slot != slot_ && growth_->holds(slot);
  }
  at::Tensor grow(int64_t slot, at::Tensor h) override { return growth_->grow(slot, std::move(h)); }
  at::Tensor holders(int64_t slot) const override {
    return growth_ == nullptr ? at::Tensor() : growth_->holders(slot);
  }

 private:
  SlotGrowth* growth_;
  int64_t slot_;
};

}  // namespace

HostInit::HostInit(uint64_t seed, const HostFrame& frame) : seed_(seed), frame_(frame) {}

void HostInit::draw(const lanes::NamedParameter& parameter, double bound) const {
  for (int64_t lane = 0; lane < frame_.lanes; ++lane)
    lanes::init_uniform_(parameter.parameter->storage().narrow(0, lane, 1), bound,
                         {seed_, parameter.name, frame_.lane_id(lane)});
}

void HostInit::kaiming_uniform(const lanes::NamedParameter& weight) const {
  draw(weight, lanes::kaiming_bound(weight.parameter->storage()));
}

void HostInit::uniform_like(const lanes::NamedParameter& bias, const lanes::LaneParameter& weight) const {
  draw(bias, lanes::kaiming_bound(weight.storage()));
}

void HostInit::fill(const at::Tensor& stacked, double value) const {
  stacked.fill_(value);
}

at::Tensor HostContext::norm(const lanes::LaneBatchNorm2d& layer, const at::Tensor& x,
                             lanes::Activation activation, lanes::Pooling pooling) const {
  lanes::BatchNormCall call = layer.call(mode, mask);
  call.activation = activation;
  call.pooling = pooling;
  return lanes::batch_norm_forward(layer, x, call, sum_over_all);
}

at::Tensor HostContext::grow(int64_t slot, at::Tensor h) const {
  return growth != nullptr && growth->holds(slot) ? growth->grow(slot, std::move(h)) : h;
}

Host::Host(const HostBuild& build, std::vector<SlotSpec> slots)
    : frame_(build.frame),
      slots_(std::move(slots)),
      entry_("host: x", frame_.memory_format, build.compute, build.options.device()) {}

void Host::add_parameters(const std::string& name, const std::vector<lanes::NamedParameter>& parameters) {
  for (const lanes::NamedParameter& named : parameters) named.parameter->set_format(frame_.memory_format);
  lanes::append_parameters(parameters_, name + ".", parameters);
}

void Host::write_first_values(const HostInit& init) {
  const std::vector<lanes::NamedParameter> all = parameters();
  const auto weight_of = [&](const std::string& bias) {
    const std::string name = bias.substr(0, bias.size() - std::string_view("bias").size()) + "weight";
    const auto found = std::ranges::find(all, name, &lanes::NamedParameter::name);
    return found == all.end() ? nullptr : found->parameter;
  };
  // A norm's is the one weight with a single value per channel.
  const auto is_of_norm = [](const lanes::LaneParameter& weight) { return weight.storage().dim() == 2; };
  for (const lanes::NamedParameter& named : all) {
    const lanes::LaneParameter* weight = named.name.ends_with("weight") ? named.parameter
                                         : named.name.ends_with("bias") ? weight_of(named.name)
                                                                        : nullptr;
    if (weight == nullptr)
      fail("host: parameter '{}': no first values are known for it; write them in write_first_values()",
           named.name);
    if (is_of_norm(*weight))
      init.fill(named.parameter->storage(), weight == named.parameter ? 1 : 0);
    else
      init.uniform_like(named, *weight);
  }
  for (const Buffer& buffer : buffers())
    init.fill(buffer.tensor, buffer.name.ends_with("running_var") ? 1 : 0);
}

HostBranches Host::forward_without_each(const at::Tensor& x, std::span<const int64_t> slots,
                                        const HostContext& context) {
  HostBranches branches{.whole = forward(x, context)};
  for (const int64_t slot : slots) {
    WithoutSlot growth(context.growth, slot);
    const at::Tensor holders = growth.holders(slot);
    std::optional<lanes::ActiveLanes> only;
    if (holders.defined()) only.emplace(holders);
    branches.without.push_back(forward(x, {.mode = context.mode, .mask = context.mask, .growth = &growth}));
  }
  return branches;
}

int64_t Host::slot_index(std::string_view name) const {
  std::vector<std::string_view> names;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].name == name) return static_cast<int64_t>(slot);
    names.push_back(slots_[slot].name);
  }
  fail_usage("slot: want one of {}, got '{}'", fmt::join(names, ", "), on_one_line(name));
}

int64_t Host::num_parameters() {
  int64_t count = 0;
  for (const lanes::NamedParameter& named : parameters()) count += named.parameter->storage()[0].numel();
  return count;
}

at::Tensor Host::enter(const at::Tensor& x) {
  return entry_.enter(x, {frame_.in_channels, frame_.height, frame_.width}, frame_.lanes);
}

void Host::initialise(uint64_t seed) {
  frame_.seed = seed;
  write_first_values(HostInit(seed, frame_));
  for (const lanes::NamedParameter& named : parameters()) named.parameter->refresh();
}

}  // namespace espalier::grow
