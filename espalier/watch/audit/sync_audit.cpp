#include "espalier/watch/audit/sync_audit.h"

#include <ATen/record_function.h>
#include <fmt/format.h>
#include <torch/csrc/profiler/collection.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <unordered_map>

#include "espalier/watch/audit/layout_audit.h"
#include "espalier/watch/audit/recording.h"
#include "espalier/watch/table.h"

namespace espalier::watch {
namespace {

using libkineto::ActivityType;
using torch::autograd::profiler::KinetoEvent;
using torch::autograd::profiler::ProfilerResult;
using torch::profiler::impl::EventType;
using torch::profiler::impl::Result;
using TorchOp = torch::profiler::impl::ExtraFields<EventType::TorchOp>;

ActivityType type_of(const KinetoEvent& event) {
  return static_cast<ActivityType>(event.activityType());
}

class WaitReader {
 public:
  explicit WaitReader(const ProfilerResult& trace) : trace_(trace) {
    for (const auto& root : trace.event_tree()) index(*root);
  }

  SyncReport read() const {
    SyncReport report;
    std::map<std::tuple<std::string, std::string, std::string>, HostWait> waits;
    for (const KinetoEvent& event : trace_.events()) {
      if (!is_in_a_step(event)) continue;
      if (type_of(event) == ActivityType::GPU_MEMCPY && event.name().find("DtoH") != std::string::npos)
        report.num_copies_back += 1;
      const bool is_call =
          type_of(event) == ActivityType::CUDA_RUNTIME || type_of(event) == ActivityType::CUDA_DRIVER;
      if (!is_call || !is_host_wait(event.name())) continue;
      HostWait wait = placed(event);
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
  void index(const Result& event) {
    if (const auto* op = std::get_if<TorchOp>(&event.extra_fields_)) {
      by_correlation_[op->correlation_id_] = &event;
      if (op->scope_ == at::RecordScope::USER_SCOPE) ranges_.push_back(&event);
    }
    for (const auto& child : event.children_) index(*child);
  }

  static bool holds(const Result& range, const KinetoEvent& event) {
    return static_cast<uint64_t>(range.start_time_ns_) <= event.startNs() &&
           event.startNs() <= static_cast<uint64_t>(range.endTimeNS());
  }

  bool is_in_a_step(const KinetoEvent& event) const {
    return std::ranges::any_of(
        ranges_, [&](const Result* range) { return range->name() == kStepRange && holds(*range, event); });
  }

  HostWait placed(const KinetoEvent& event) const {
    HostWait wait{.call = event.name(),
                  .op = kNoOp,
                  .place = kNoPlace,
                  .total_us = static_cast<double>(event.durationNs()) * 1e-3};
    if (const auto found = by_correlation_.find(event.linkedCorrelationId()); found != by_correlation_.end())
      for (auto at = found->second->shared_from_this(); at != nullptr; at = at->parent_.lock()) {
        const auto* op = std::get_if<TorchOp>(&at->extra_fields_);
        if (op == nullptr) continue;
        if (op->scope_ == at::RecordScope::USER_SCOPE) {
          if (op->name_ != kStepRange) wait.place = op->name_;
          break;
        }
        wait.op = op->name_;
      }
    if (wait.place != kNoPlace) return wait;
    // A call that no op made: by its time.
    const Result* innermost = nullptr;
    for (const Result* range : ranges_)
      if (range->name() != kStepRange && holds(*range, event) &&
          (innermost == nullptr || innermost->start_time_ns_ <= range->start_time_ns_))
        innermost = range;
    if (innermost != nullptr) wait.place = innermost->name();
    return wait;
  }

  const ProfilerResult& trace_;
  std::unordered_map<uint64_t, const Result*> by_correlation_;
  std::vector<const Result*> ranges_;
};

}  // namespace

bool is_host_wait(std::string_view call) {
  if (call.find("Synchronize") != call.npos) return true;  // of a stream, an event, the device or a context
  return call.starts_with("cudaMemcpy") && call.find("Async") == call.npos;
}

int64_t SyncReport::num_waits() const {
  int64_t count = 0;
  for (const HostWait& wait : waits) count += wait.times;
  return count;
}

std::string SyncReport::text() const {
  if (waits.empty()) return fmt::format("the host waited for {} nowhere\n", device);
  Table table({"call", "op", "place", ">times", ">us each"});
  for (const HostWait& wait : waits)
    table.add_row({wait.call, wait.op, wait.place, std::to_string(wait.times),
                   fmt::format("{:.1f}", wait.total_us / static_cast<double>(wait.times))});
  return table.text() + fmt::format("copies from the device to the host: {}\n", num_copies_back);
}

SyncReport audit_sync(c10::Device device, int steps, const std::function<void()>& step) {
  return read_waits(*record_steps(device, "audit_sync", steps, step), device, steps);
}

SyncReport read_waits(const ProfilerResult& trace, c10::Device device, int steps) {
  SyncReport report = WaitReader(trace).read();
  report.device = device.str();
  report.steps = steps;
  return report;
}

}  // namespace espalier::watch
