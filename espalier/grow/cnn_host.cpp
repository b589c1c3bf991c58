#include "espalier/grow/cnn_host.h"

#include <ATen/record_function.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/lanes/lane_init.h"
#include "espalier/lanes/lane_pool.h"

namespace espalier::grow {
namespace {

const CnnHostOptions& checked(const CnnHostOptions& options) {
  check_host(options);
  return options;
}

std::vector<std::string> names_of(const std::vector<SlotSpec>& slots) {
  std::vector<std::string> names;
  for (const SlotSpec& slot : slots) names.push_back(slot.name);
  return names;
}

void check_after([[maybe_unused]] const std::string& block, [[maybe_unused]] const char* op,
                 [[maybe_unused]] const at::Tensor& h, [[maybe_unused]] MemoryFormat format) {
#if defined(ESPALIER_CHECK_LAYOUT)
  lanes::check_layout_after(block + "." + op, h, format);
#endif
}

}  // namespace

CnnHost::CnnHost(const CnnHostOptions& options, const at::TensorOptions& tensor_options,
                 at::ScalarType compute)
    : options_(checked(options)),
      slots_(slots_by_action(options)),
      door_("host: x", options.memory_format, compute, tensor_options.device()) {
  int64_t channels = options.in_channels;
  for (int64_t i = 0; i < options.n_blocks; ++i) {
    const int64_t filters = options.base_channels << i;
    blocks_.push_back({.conv = lanes::LaneConv2d({.lanes = options.lanes,
                                                  .in_channels = channels,
                                                  .out_channels = filters,
                                                  .kernel_size = options.kernel_size,
                                                  .geometry = {.padding = options.kernel_size / 2}},
                                                 tensor_options, compute),
                       .norm = lanes::LaneBatchNorm2d(options.lanes, filters, tensor_options),
                       .name = fmt::format("block{}", i)});
    channels = filters;
  }
  classifier_ = std::make_unique<lanes::LaneLinear>(
      lanes::LaneLinearOptions{
          .lanes = options.lanes, .in_features = channels, .out_features = options.num_classes},
      tensor_options);

  slot_places_.resize(slots_.size());
  const auto add_slot = [&](const std::string& name) {
    const int64_t slot = slot_index(name);
    slot_places_[static_cast<size_t>(slot)] = plan_.size();
    plan_.push_back({Step::Kind::kSlot, slot});
  };
  for (int64_t i = 0; i < options.n_blocks; ++i) {
    plan_.push_back({Step::Kind::kBlock, i});
    add_slot(fmt::format("r0c{}", i));
    if (i >= num_pooled(options)) continue;
    plan_.push_back({Step::Kind::kPool, i});
    add_slot(fmt::format("r1c{}", i));
  }
  plan_.push_back({Step::Kind::kHead});

  for (const lanes::NamedParameter& named : parameters()) named.parameter->set_format(options.memory_format);
  initialise(options.seed);
}

int64_t CnnHost::slot_index(std::string_view name) const {
  for (size_t slot = 0; slot < slots_.size(); ++slot)
    if (slots_[slot].name == name) return static_cast<int64_t>(slot);
  fail_usage("slot: want one of {}, got '{}'", fmt::join(names_of(slots_), ", "), name);
}

size_t CnnHost::place_of(std::string_view boundary) const {
  return boundary == kHostInput ? 0 : slot_places_[static_cast<size_t>(slot_index(boundary))];
}

at::Tensor CnnHost::enter(const at::Tensor& x, size_t place) {
  if (plan_[place].kind != Step::Kind::kSlot)
    return door_.enter(x, {options_.in_channels, options_.height, options_.width}, options_.lanes);
  const SlotSpec& slot = slots_[static_cast<size_t>(plan_[place].index)];
  return door_.enter(x, {slot.channels, slot.height, slot.width}, options_.lanes);
}

at::Tensor CnnHost::forward(const at::Tensor& x, const HostContext& context) {
  return walk(enter(x, 0), 0, plan_.size(), context);
}

at::Tensor CnnHost::forward_to_segment(std::string_view slot, const at::Tensor& x, std::string_view from,
                                       const HostContext& context) {
  const size_t begin = place_of(from), end = slot_places_[static_cast<size_t>(slot_index(slot))];
  if (begin > end) {
    std::vector<std::string> ahead;
    for (const SlotSpec& each : slots_by_execution(options_))
      if (place_of(each.name) >= begin) ahead.push_back(each.name);
    fail_usage("forward_to_segment: from {} to {} is backwards; from there one may go to {}", from, slot,
               fmt::join(ahead, ", "));
  }
  return walk(enter(x, begin), begin, end, context);
}

at::Tensor CnnHost::forward_from_segment(std::string_view slot, const at::Tensor& x,
                                         const HostContext& context) {
  const size_t begin = slot_places_[static_cast<size_t>(slot_index(slot))];
  return walk(enter(x, begin), begin, plan_.size(), context);
}

HostBranches CnnHost::forward_without_each(const at::Tensor& x, std::span<const int64_t> slots,
                                           const HostContext& context) {
  HostBranches branches{.without = std::vector<at::Tensor>(slots.size())};
  at::Tensor h = enter(x, 0);
  size_t begin = 0;
  for (size_t place = 0; place < plan_.size(); ++place) {
    if (plan_[place].kind != Step::Kind::kSlot) continue;
    const auto asked = std::ranges::find(slots, plan_[place].index);
    if (asked == slots.end()) continue;
    h = walk(h, begin, place, context);
    branches.without[static_cast<size_t>(asked - slots.begin())] = walk(h, place + 1, plan_.size(), context);
    begin = place;
  }
  branches.whole = walk(h, begin, plan_.size(), context);
  return branches;
}

at::Tensor CnnHost::walk(at::Tensor h, size_t begin, size_t end, const HostContext& context) {
  const auto holds = [&](int64_t slot) { return context.growth && context.growth->holds(slot); };
  for (size_t place = begin; place < end; ++place) {
    const Step& step = plan_[place];
    switch (step.kind) {
      case Step::Kind::kBlock: {
        const Block& block = blocks_[static_cast<size_t>(step.index)];
        RECORD_USER_SCOPE(block.name);
        h = block.conv.forward(h);
        check_after(block.name, "conv", h, options_.memory_format);
        // The slot and the pool come next: with nothing in the slot, the norm does the pooling too.
        const bool pools_too =
            place + 2 < end && plan_[place + 2].kind == Step::Kind::kPool && !holds(plan_[place + 1].index);
        h = block.norm.forward(h, context.mode, context.mask, lanes::Activation::kRelu,
                               pools_too ? lanes::Pooling::k2x2 : lanes::Pooling::kNone);
        check_after(block.name, "norm", h, options_.memory_format);
        if (pools_too) place += 2;
        break;
      }
      case Step::Kind::kSlot: {
        if (!holds(step.index)) break;
        const SlotSpec& slot = slots_[static_cast<size_t>(step.index)];
        RECORD_USER_SCOPE(slot.name);
        h = context.growth->grow(step.index, h);
        check_after(slot.name, "seeds", h, options_.memory_format);
        break;
      }
      case Step::Kind::kPool: {
        RECORD_USER_SCOPE(blocks_[static_cast<size_t>(step.index)].name);
        h = lanes::lane_max_pool2x2(h);
        check_after(blocks_[static_cast<size_t>(step.index)].name, "pool", h, options_.memory_format);
        break;
      }
      case Step::Kind::kHead: {
        RECORD_USER_SCOPE("classifier");
        h = classifier_->forward(lanes::lane_global_average_pool(h));
        break;
      }
    }
  }
  return h;
}

std::vector<lanes::NamedParameter> CnnHost::parameters() {
  std::vector<lanes::NamedParameter> named;
  for (Block& block : blocks_) {
    lanes::append_parameters(named, block.name + ".conv.", block.conv.parameters());
    lanes::append_parameters(named, block.name + ".norm.", block.norm.parameters());
  }
  lanes::append_parameters(named, "classifier.", classifier_->parameters());
  return named;
}

std::vector<CnnHost::Buffer> CnnHost::buffers() const {
  std::vector<Buffer> buffers;
  for (const Block& block : blocks_) {
    buffers.push_back({block.name + ".norm.running_mean", block.norm.running_mean});
    buffers.push_back({block.name + ".norm.running_var", block.norm.running_var});
  }
  return buffers;
}

void CnnHost::initialise(uint64_t seed) {
  options_.seed = seed;
  initialise_lanes(0, options_.lanes, seed);
}

void CnnHost::initialise_lane(int64_t lane, uint64_t seed) {
  if (lane < 0 || lane >= options_.lanes) fail_usage("lane: want 0 to {}, got {}", options_.lanes - 1, lane);
  initialise_lanes(lane, 1, seed);
}

void CnnHost::initialise_lanes(int64_t first, int64_t count, uint64_t seed) {
  const auto part = [&](const at::Tensor& stacked) { return stacked.narrow(0, first, count); };
  const auto draw = [&](const at::Tensor& stacked, double bound, std::string_view name) {
    for (int64_t lane = first; lane < first + count; ++lane)
      lanes::init_uniform_(stacked.narrow(0, lane, 1), bound, {seed, name, options_.lane_id(lane)});
  };
  for (Block& block : blocks_) {
    const at::Tensor& weight = block.conv.weight.storage();
    draw(weight, lanes::kaiming_bound(weight), block.name + ".conv.weight");
    part(block.norm.weight.storage()).fill_(1);
    part(block.norm.bias.storage()).zero_();
    part(block.norm.running_mean).zero_();
    part(block.norm.running_var).fill_(1);
  }
  const double bound = lanes::kaiming_bound(classifier_->weight.storage());
  draw(classifier_->weight.storage(), bound, "classifier.weight");
  draw(classifier_->bias.storage(), bound, "classifier.bias");
  for (const lanes::NamedParameter& named : parameters()) named.parameter->refresh();
}

void CnnHost::set_memory_format(MemoryFormat format) {
  for (const lanes::NamedParameter& named : parameters()) named.parameter->set_format(format);
  options_.memory_format = format;
  door_.set_format(format);
}

}  // namespace espalier::grow
