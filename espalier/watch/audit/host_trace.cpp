#include "espalier/watch/audit/host_trace.h"

#include <ATen/record_function.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/collection.h>

#include <algorithm>

namespace espalier::watch {
namespace {

using libkineto::ActivityType;
using torch::autograd::profiler::KinetoEvent;
using torch::profiler::impl::EventType;
using torch::profiler::impl::Result;
using TorchOp = torch::profiler::impl::ExtraFields<EventType::TorchOp>;

void add_spans(const Result& event, int64_t parent, std::vector<HostSpan>& spans) {
  if (const auto* op = std::get_if<TorchOp>(&event.extra_fields_)) {
    const bool is_range = op->scope_ == at::RecordScope::USER_SCOPE;
    spans.push_back({.kind = is_range ? HostSpan::Kind::kRange : HostSpan::Kind::kOp,
                     .name = op->name_,
                     .start_ns = static_cast<uint64_t>(event.start_time_ns_),
                     .end_ns = static_cast<uint64_t>(event.endTimeNS()),
                     .id = op->correlation_id_,
                     .parent = parent});
    parent = std::ssize(spans) - 1;
  }
  for (const auto& child : event.children_) add_spans(*child, parent, spans);
}

}  // namespace

HostTrace host_trace(const torch::autograd::profiler::ProfilerResult& trace) {
  HostTrace made;
  for (const auto& root : trace.event_tree()) add_spans(*root, kNoParent, made.spans);
  for (const KinetoEvent& event : trace.events()) {
    const auto type = static_cast<ActivityType>(event.activityType());
    if (type == ActivityType::CUDA_RUNTIME || type == ActivityType::CUDA_DRIVER)
      made.calls.push_back({.name = event.name(),
                            .thread = static_cast<uint64_t>(event.deviceResourceId()),
                            .start_ns = event.startNs(),
                            .duration_ns = event.durationNs(),
                            .correlation = event.correlationId(),
                            .linked_span = event.linkedCorrelationId()});
    if (type == ActivityType::GPU_MEMCPY)
      made.copies.push_back({.name = event.name(), .correlation = event.correlationId()});
  }
  std::ranges::stable_sort(made.calls, {}, &RuntimeCall::start_ns);
  return made;
}

}  // namespace espalier::watch
