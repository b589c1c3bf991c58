#include "espalier/watch/audit/waits.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "espalier/watch/audit/layout.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::watch {
namespace {

bool is_copy_back(const DeviceCopy& copy) {
  return copy.name.find("DtoH") != std::string::npos;
}

bool is_pageable(const DeviceCopy& copy) {
  return copy.name.find("Pageable") != std::string::npos;
}

class WaitReader {
 public:
  explicit WaitReader(const HostTrace& trace) : trace_(trace) {
    for (const HostSpan& span : trace.spans) {
      if (span.id != 0) by_id_[span.id] = &span;
      if (span.kind == HostSpan::Kind::kRange) ranges_.push_back(&span);
    }
    for (const DeviceCopy& copy : trace.copies) copies_[copy.correlation].push_back(&copy);
  }

  SyncReport read() const {
    SyncReport report;
    std::map<std::tuple<std::string, std::string, std::string>, HostWait> waits;
    for (size_t i = 0; i < trace_.calls.size(); ++i) {
      const RuntimeCall& call = trace_.calls[i];
      if (!is_in_a_step(call)) continue;
      report.num_calls += 1;
      report.num_copies_back +=
          std::ranges::count_if(copies_of(call), [](const DeviceCopy* copy) { return is_copy_back(*copy); });
      const bool waits_here = is_host_wait(call.name);
      if (!waits_here && !is_staged_alone(i)) continue;
      HostWait wait = placed(call);
      if (!waits_here) wait.call += ", pageable";
      HostWait& sum = waits[{wait.call, wait.op, wait.place}];
      wait.times = sum.times + 1;
      wait.total_us += sum.total_us;
      sum = std::move(wait);
    }
    for (auto& [key, wait] : waits) report.waits.push_back(wait);
    std::ranges::stable_sort(report.waits, std::ranges::greater{}, &HostWait::times);
    return report;
  }

 private:
  static bool holds(const HostSpan& range, const RuntimeCall& call) {
    return range.start_ns <= call.start_ns && call.start_ns <= range.end_ns;
  }

  bool is_in_a_step(const RuntimeCall& call) const {
    return std::ranges::any_of(
        ranges_, [&](const HostSpan* range) { return range->name == kStepRange && holds(*range, call); });
  }

  const std::vector<const DeviceCopy*>& copies_of(const RuntimeCall& call) const {
    static const std::vector<const DeviceCopy*> kNone;
    const auto found = copies_.find(call.correlation);
    return found == copies_.end() ? kNone : found->second;
  }

  // An asynchronous copy from or to pageable memory that no synchronisation follows at once: that one would
  // be counted in its stead.
  bool is_staged_alone(size_t index) const {
    const RuntimeCall& call = trace_.calls[index];
    // A replayed graph's copies were laid down when it was captured: the launch stages nothing.
    if (!call.name.starts_with("cudaMemcpy") && !call.name.starts_with("cuMemcpy")) return false;
    if (!std::ranges::any_of(copies_of(call), [](const DeviceCopy* copy) { return is_pageable(*copy); }))
      return false;
    for (size_t i = index + 1; i < trace_.calls.size(); ++i)
      if (trace_.calls[i].thread == call.thread) return !is_host_wait(trace_.calls[i].name);
    return true;
  }

  HostWait placed(const RuntimeCall& call) const {
    HostWait wait{.call = call.name,
                  .op = kNoOp,
                  .place = kNoPlace,
                  .total_us = static_cast<double>(call.duration_ns) * 1e-3};
    if (const auto found = by_id_.find(call.linked_span); found != by_id_.end())
      for (const HostSpan* at = found->second; at != nullptr; at = parent_of(*at)) {
        if (at->kind == HostSpan::Kind::kRange) {
          if (at->name != kStepRange) wait.place = at->name;
          break;
        }
        wait.op = at->name;
      }
    if (wait.place != kNoPlace) return wait;
    // A call that no op made: by its time.
    const HostSpan* innermost = nullptr;
    for (const HostSpan* range : ranges_)
      if (range->name != kStepRange && holds(*range, call) &&
          (innermost == nullptr || innermost->start_ns <= range->start_ns))
        innermost = range;
    if (innermost != nullptr) wait.place = innermost->name;
    return wait;
  }

  const HostSpan* parent_of(const HostSpan& span) const {
    return span.parent == kNoParent ? nullptr : &trace_.spans[static_cast<size_t>(span.parent)];
  }

  const HostTrace& trace_;
  std::unordered_map<uint64_t, const HostSpan*> by_id_;
  std::unordered_map<uint64_t, std::vector<const DeviceCopy*>> copies_;  // by correlation
  std::vector<const HostSpan*> ranges_;
};

}  // namespace

bool is_host_wait(std::string_view call) {
  // For a stream, an event, the device or a context.
  if (call.find("Synchronize") != call.npos) return true;
  // Memory that goes back to the driver waits for whatever may still use it.
  for (const std::string_view freeing : {"cudaFree", "cudaFreeHost", "cuMemFree", "cuMemFreeHost"})
    if (call == freeing || (call.starts_with(freeing) && call.substr(freeing.size()).starts_with("_v")))
      return true;
  const bool copies = call.starts_with("cudaMemcpy") || call.starts_with("cuMemcpy");
  return copies && call.find("Async") == call.npos;
}

int64_t SyncReport::num_waits() const {
  int64_t count = 0;
  for (const HostWait& wait : waits) count += wait.times;
  return count;
}

std::string SyncReport::text() const {
  if (device.is_cpu())
    return fmt::format("{} is no device that the host waits for: nothing to count\n", device.str());
  if (num_calls == 0)
    return fmt::format(
        "no call of the CUDA runtime was recorded on {}: whether the host waited is not known\n",
        device.str());
  const std::string summary = fmt::format(
      "calls of the runtime: {}; copies from the device to the host: {}\nhost waits per step: {:.3g}\n",
      num_calls, num_copies_back, static_cast<double>(num_waits()) / static_cast<double>(steps));
  if (waits.empty()) return summary;
  Table table({"call", "op", "place", ">times", ">us each"});
  for (const HostWait& wait : waits)
    table.add_row({wait.call, wait.op, wait.place, std::to_string(wait.times),
                   fmt::format("{:.1f}", wait.total_us / static_cast<double>(wait.times))});
  return table.text() + summary;
}

SyncReport read_waits(const torch::autograd::profiler::ProfilerResult& trace, c10::Device device, int steps) {
  return read_waits(host_trace(trace), device, steps);
}

SyncReport read_waits(const HostTrace& trace, c10::Device device, int steps) {
  SyncReport report = WaitReader(trace).read();
  report.device = device;
  report.steps = steps;
  return report;
}

}  // namespace espalier::watch
