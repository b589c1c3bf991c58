#include "espalier/grow/host/cnn.h"

#include <ATen/record_function.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "espalier/core/error.h"
#include "espalier/lanes/active.h"
#include "espalier/lanes/head/pool.h"

namespace espalier::grow {
namespace {

const CnnHostOptions& checked(const CnnHostOptions& options) {
  check_host(options);
  return options;
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
    : Host({.frame = checked(options).frame(), .options = tensor_options, .compute = compute},
           slots_by_action(options)),
      options_(options) {
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

  const auto add_slot = [&](const std::string& name) {
    plan_.push_back({Step::Kind::kSlot, slot_index(name)});
  };
  for (int64_t i = 0; i < options.n_blocks; ++i) {
    plan_.push_back({Step::Kind::kBlock, i});
    add_slot(fmt::format("r0c{}", i));
    if (i >= num_pooled(options)) continue;
    plan_.push_back({Step::Kind::kPool, i});
    add_slot(fmt::format("r1c{}", i));
  }
  plan_.push_back({Step::Kind::kHead});

  for (Block& block : blocks_) {
    add(block.name + ".conv", block.conv);
    add(block.name + ".norm", block.norm);
  }
  add("classifier", *classifier_);
  initialise(options.seed);
}

at::Tensor CnnHost::forward(const at::Tensor& x, const HostContext& context) {
  return walk(enter(x), 0, plan_.size(), context);
}

HostBranches CnnHost::forward_without_each(const at::Tensor& x, std::span<const int64_t> slots,
                                           const HostContext& context) {
  HostBranches branches{.without = std::vector<at::Tensor>(slots.size())};
  at::Tensor h = enter(x);
  size_t begin = 0;
  for (size_t place = 0; place < plan_.size(); ++place) {
    if (plan_[place].kind != Step::Kind::kSlot) continue;
    const auto asked = std::ranges::find(slots, plan_[place].index);
    if (asked == slots.end()) continue;
    h = walk(std::move(h), begin, place, context);
    at::Tensor& without = branches.without[static_cast<size_t>(asked - slots.begin())];
    const at::Tensor holders = context.growth ? context.growth->holders(*asked) : at::Tensor();
    std::optional<lanes::ActiveLanes> only;
    if (holders.defined()) only.emplace(holders);
    without = walk(h, place + 1, plan_.size(), context);
    begin = place;
  }
  branches.whole = walk(std::move(h), begin, plan_.size(), context);
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
        h = context.norm(block.norm, h, lanes::Activation::kRelu,
                         pools_too ? lanes::Pooling::k2x2 : lanes::Pooling::kNone);
        check_after(block.name, "norm", h, options_.memory_format);
        if (pools_too) place += 2;
        break;
      }
      case Step::Kind::kSlot: {
        if (!holds(step.index)) break;
        const SlotSpec& slot = slots()[static_cast<size_t>(step.index)];
        RECORD_USER_SCOPE(slot.name);
        h = context.growth->grow(step.index, std::move(h));
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
        h = classifier_->forward_pooled(h);
        break;
      }
    }
  }
  return h;
}

HostMaker cnn_host(const CnnHostOptions& options) {
  return [options](const HostBuild& build) {
    return std::make_unique<CnnHost>(options.in(build.frame), build.options, build.compute);
  };
}

}  // namespace espalier::grow
