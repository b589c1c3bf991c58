#include "espalier/watch/audit/trace_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/collection.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

namespace espalier::watch {
namespace {

using torch::autograd::profiler::KinetoEvent;
using torch::profiler::impl::EventType;
using torch::profiler::impl::Result;
using torch::profiler::impl::TensorMetadata;
using TorchOp = torch::profiler::impl::ExtraFields<EventType::TorchOp>;

const TorchOp* torch_op(const Result& event) {
  return std::get_if<TorchOp>(&event.extra_fields_);
}

bool is_range(const Result& event) {
  const TorchOp* op = torch_op(event);
  return op != nullptr && op->scope_ == at::RecordScope::USER_SCOPE;
}

// An operator, as against a named range, a node of the backward graph or the engine's own mark around one.
bool is_operator(const Result& event) {
  const TorchOp* op = torch_op(event);
  return op != nullptr && op->scope_ == at::RecordScope::FUNCTION &&
         !op->name_.starts_with("autograd::engine");
}

// Ops whose only work is the copy that they end in, as against those that copy an input on the way.
bool is_copy(const std::string& op) {
  static const std::set<std::string> kCopies{
      "aten::copy_",    "aten::clone",   "aten::contiguous",    "aten::to",
      "aten::_to_copy", "aten::reshape", "aten::_reshape_copy", "aten::reshape_as",
      "aten::flatten",  "aten::type_as", "aten::cat",           "aten::stack",
      "aten::hstack",   "aten::vstack",  "aten::concat",        "aten::_unsafe_view"};
  return kCopies.contains(op) || op.starts_with("aten::_foreach_copy");
}

bool is_strided(const TensorMetadata& tensor) {
  return tensor.sizes_.size() == tensor.strides_.size();
}

Geometry geometry(const TensorMetadata& tensor) {
  return {tensor.sizes_, tensor.strides_};
}

// All tensors that an op takes, those in lists included, in order.
std::vector<const TensorMetadata*> tensors_of(const TorchOp& op) {
  std::vector<const TensorMetadata*> tensors;
  for (const auto& input : op.inputs_) {
    if (const auto* tensor = std::get_if<TensorMetadata>(&input)) tensors.push_back(tensor);
    if (const auto* list = std::get_if<std::vector<TensorMetadata>>(&input))
      for (const TensorMetadata& tensor : *list) tensors.push_back(&tensor);
  }
  std::erase_if(tensors, [](const TensorMetadata* tensor) { return !is_strided(*tensor); });
  return tensors;
}

std::string list_text(const std::vector<int64_t>& values) {
  return fmt::format("[{}]", fmt::join(values, ","));
}

std::string layout_of(const TensorMetadata& tensor) {
  const LayoutKind kind = watch::layout_of(tensor.sizes_, tensor.strides_);
  const std::string text(layout_text(kind));
  return kind == LayoutKind::kOther ? text + " " + list_text(tensor.strides_) : text;
}

struct Pair {
  const TensorMetadata* to;
  const TensorMetadata* from;
};

// What a copy_ or _foreach_copy_ writes and reads: (self, src, ...), tensors or lists of them.
std::vector<Pair> copied_by(const TorchOp& op) {
  if (op.name_ != "aten::copy_" && !op.name_.starts_with("aten::_foreach_copy")) return {};
  const auto tensors = tensors_of(op);
  std::vector<Pair> pairs;
  for (size_t i = 0; i < tensors.size() / 2; ++i)
    pairs.push_back({tensors[i], tensors[tensors.size() / 2 + i]});
  return pairs;
}

// Two inputs of one shape, at least images, that lie in different orders.
std::optional<Pair> mixed_inputs(const TorchOp& op) {
  const auto tensors = tensors_of(op);
  for (size_t i = 0; i < tensors.size(); ++i)
    for (size_t j = i + 1; j < tensors.size(); ++j)
      if (tensors[i]->sizes_.size() >= 4 && tensors[i]->sizes_ == tensors[j]->sizes_ &&
          !is_same_order(geometry(*tensors[i]), geometry(*tensors[j])))
        return Pair{tensors[j], tensors[i]};
  return std::nullopt;
}

// The first copy_ at or below an event.
std::optional<Pair> copy_below(const Result& event) {
  if (const TorchOp* op = torch_op(event))
    if (const auto pairs = copied_by(*op); !pairs.empty()) return pairs.front();
  for (const auto& child : event.children_)
    if (auto pair = copy_below(*child)) return pair;
  return std::nullopt;
}

// The values of a map, the largest count first, otherwise in the order of their keys.
template <class Map, class Count>
std::vector<typename Map::mapped_type> sorted(const Map& map, Count count) {
  std::vector<typename Map::mapped_type> values;
  for (const auto& [key, value] : map) values.push_back(value);
  std::ranges::stable_sort(values, std::ranges::greater{}, count);
  return values;
}

class TraceReader {
 public:
  explicit TraceReader(const torch::autograd::profiler::ProfilerResult& trace) : trace_(trace) {
    for (const auto& root : trace.event_tree()) index(*root);
  }

  LayoutReport read() {
    for (const auto& root : trace_.event_tree()) read_ops(*root, Counting::kOn);
    LayoutReport report;
    read_kernels(report);
    report.ops = sorted(ops_, &OpUse::calls);
    report.conversions = sorted(conversions_, &Conversion::times);
    report.mixed_inputs = sorted(mixed_, &Conversion::times);
    report.kernels = sorted(kernels_, &KernelUse::times);
    return report;
  }

 private:
  enum class Counting : uint8_t { kOn, kOff };
  using Key = std::vector<std::string>;

  // Notes ops by correlation, and where the forward op of each node of the backward graph ran.
  void index(const Result& event) {
    if (const TorchOp* op = torch_op(event)) {
      if (!is_range(event)) by_correlation_[op->correlation_id_] = &event;
      // The op that makes a node is the last to see its number: others before it made none.
      if (op->forward_tid_ == 0 && op->sequence_number_ >= 0 && is_operator(event)) {
        const Result*& maker = makers_[{event.start_tid_, op->sequence_number_}];
        if (maker == nullptr || maker->start_time_ns_ <= event.start_time_ns_) maker = &event;
      }
    }
    for (const auto& child : event.children_) index(*child);
  }

  const Result* forward_of(const TorchOp& node) const {
    if (node.forward_tid_ == 0 || node.sequence_number_ < 0) return nullptr;
    const auto maker = makers_.find({node.forward_tid_, node.sequence_number_});
    return maker == makers_.end() ? nullptr : maker->second;
  }

  // A range that the backward pass opened itself is nearer than that of the forward op; that in turn says
  // more than one around the whole backward pass.
  std::string place_of(const Result& event) const {
    for (auto at = event.shared_from_this(); at != nullptr; at = at->parent_.lock()) {
      const TorchOp* op = torch_op(*at);
      if (op == nullptr) continue;
      if (is_range(*at)) return op->name_;
      if (const Result* forward = forward_of(*op); forward != nullptr && forward != at.get())
        if (const std::string place = place_of(*forward); place != kNoPlace) return "backward of " + place;
    }
    return kNoPlace;
  }

  // The innermost range around the launch of a kernel that no op made, by the mark that Kineto leaves of it
  // on the kernel's own stream. Times on the host would not do: its clock and the device's differ by
  // microseconds.
  std::string place_of(const KinetoEvent& kernel) const {
    const KinetoEvent* innermost = nullptr;
    for (const KinetoEvent* mark : marks_)
      if (mark->deviceIndex() == kernel.deviceIndex() &&
          mark->deviceResourceId() == kernel.deviceResourceId() && mark->startNs() <= kernel.startNs() &&
          kernel.endNs() <= mark->endNs() &&
          (innermost == nullptr || innermost->startNs() <= mark->startNs()))
        innermost = mark;
    return innermost == nullptr ? kNoPlace : innermost->name();
  }

  void read_ops(const Result& event, Counting counting) {
    if (is_operator(event)) {
      const TorchOp& op = *torch_op(event);
      OpUse& use = ops_[{op.name_}];
      use.op = op.name_;
      ++use.calls;
      for (const TensorMetadata* tensor : tensors_of(op))
        ++use.inputs[static_cast<size_t>(watch::layout_of(tensor->sizes_, tensor->strides_))];
      if (counting == Counting::kOn && count_conversion(event, op)) counting = Counting::kOff;
    }
    for (const auto& child : event.children_) read_ops(*child, counting);
  }

  // Whether this op is a conversion, or has been reported as reading two layouts, so that what is below it is
  // part of the same.
  bool count_conversion(const Result& event, const TorchOp& op) {
    if (op.name_ == "aten::contiguous") {
      const auto pair = copy_below(event);
      if (pair) add(conversions_, event, *pair);
      return pair.has_value();
    }
    if (op.name_ == "aten::cat") {
      const auto tensors = tensors_of(op);
      add(conversions_, event, {nullptr, tensors.empty() ? nullptr : tensors.front()});
      return true;
    }
    const auto pairs = copied_by(op);
    for (const Pair& pair : pairs)
      if (!is_same_order(geometry(*pair.to), geometry(*pair.from))) add(conversions_, event, pair);
    if (!pairs.empty()) return true;
    const auto mixed = is_copy(op.name_) ? std::nullopt : mixed_inputs(op);
    if (mixed) add(mixed_, event, *mixed);
    return false;
  }

  void add(std::map<Key, Conversion>& to, const Result& event, const Pair& pair) {
    // Up to the outermost op whose only work this copy is, and on to the one that called it.
    const Result* outermost = &event;
    auto caller = event.parent_.lock();
    for (; caller != nullptr && !is_range(*caller); caller = caller->parent_.lock()) {
      if (!is_operator(*caller)) continue;
      if (!is_copy(caller->name())) break;
      outermost = caller.get();
    }
    const bool has_caller = caller != nullptr && is_operator(*caller);
    Conversion one{.place = place_of(event),
                   .op = outermost->name(),
                   .inside = has_caller ? caller->name() : "",
                   .sizes = pair.from == nullptr ? "" : list_text(pair.from->sizes_),
                   .from = pair.from == nullptr ? "" : layout_of(*pair.from),
                   .to = pair.to == nullptr ? "" : layout_of(*pair.to)};
    Conversion& sum = to[{one.place, one.op, one.inside, one.sizes, one.from, one.to}];
    one.times = sum.times + 1;
    sum = std::move(one);
  }

  void read_kernels(LayoutReport& report) {
    using libkineto::ActivityType;
    std::set<uint64_t> graph_launches;  // by correlation
    for (const KinetoEvent& event : trace_.events()) {
      if (event.deviceType() == c10::DeviceType::CPU && event.name().find("GraphLaunch") != std::string::npos)
        graph_launches.insert(event.correlationId());
      if (static_cast<ActivityType>(event.activityType()) == ActivityType::GPU_USER_ANNOTATION)
        marks_.push_back(&event);
    }
    for (const KinetoEvent& event : trace_.events()) {
      const auto type = static_cast<ActivityType>(event.activityType());
      if (type != ActivityType::CONCURRENT_KERNEL && type != ActivityType::GPU_MEMCPY) continue;
      ++report.num_kernels;
      Work& work = report.work[static_cast<size_t>(work_of(event.name()))];
      work.launches += 1;
      work.total_us += static_cast<double>(event.durationNs()) * 1e-3;
      const KernelClass known = classify_kernel(event.name());
      if (known.kind == KernelKind::kCompute) continue;
      const auto op = by_correlation_.find(event.linkedCorrelationId());
      const bool is_replayed = graph_launches.contains(event.correlationId());
      const bool has_op = !is_replayed && op != by_correlation_.end();
      KernelUse use{.kernel = known.label,
                    .op = has_op        ? op->second->name()
                          : is_replayed ? kGraphReplay
                                        : kNoOp,
                    .place = has_op ? place_of(*op->second) : place_of(event),
                    .kind = known.kind};
      use.is_behind_an_op = known.kind == KernelKind::kReformat || !is_copy(use.op);
      KernelUse& sum = kernels_[{use.kernel, use.op, use.place}];
      use.times = sum.times + 1;
      use.total_us = sum.total_us + static_cast<double>(event.durationNs()) * 1e-3;
      sum = std::move(use);
    }
  }

  const torch::autograd::profiler::ProfilerResult& trace_;
  std::unordered_map<uint64_t, const Result*> by_correlation_;
  std::map<std::pair<uint64_t, int64_t>, const Result*> makers_;  // by thread and sequence number
  std::vector<const KinetoEvent*> marks_;                         // ranges' marks on the device
  std::map<Key, OpUse> ops_;
  std::map<Key, Conversion> conversions_, mixed_;
  std::map<Key, KernelUse> kernels_;
};

}  // namespace

LayoutReport read_trace(const torch::autograd::profiler::ProfilerResult& trace) {
  return TraceReader(trace).read();
}

}  // namespace espalier::watch
