#include "espalier/watch/audit/work_summary.h"

#include <fmt/format.h>
#include <torch/csrc/profiler/collection.h>

#include <algorithm>
#include <map>
#include <vector>

#include "espalier/watch/audit/kernel_work.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::watch {
namespace {

using libkineto::ActivityType;

constexpr size_t kMostOps = 12;

std::string milliseconds(double us) {
  return fmt::format("{:.2f}", us / 1e3);
}

}  // namespace

std::string work_summary(const torch::autograd::profiler::ProfilerResult& trace) {
  WorkByKind kernels{};
  std::map<std::string, Work> ops;
  for (const auto& event : trace.events()) {
    const double us = static_cast<double>(event.durationNs()) * 1e-3;
    const auto type = static_cast<ActivityType>(event.activityType());
    const bool is_kernel = type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY;
    if (!is_kernel && type != ActivityType::CPU_OP) continue;
    Work& work = is_kernel ? kernels[static_cast<size_t>(work_of(event.name()))] : ops[event.name()];
    work.launches += 1;
    work.total_us += us;
  }
  std::string text;
  Table by_kind({"kernels", ">ms", ">launches"});
  bool has_kernels = false;
  for (size_t kind = 0; kind < kernels.size(); ++kind) {
    if (kernels[kind].launches == 0) continue;
    has_kernels = true;
    by_kind.add_row({std::string(work_text(static_cast<WorkKind>(kind))),
                     milliseconds(kernels[kind].total_us), std::to_string(kernels[kind].launches)});
  }
  if (has_kernels) text += by_kind.text();
  std::vector<std::pair<std::string, Work>> slowest(ops.begin(), ops.end());
  std::ranges::sort(slowest,
                    [](const auto& a, const auto& b) { return a.second.total_us > b.second.total_us; });
  slowest.resize(std::min(slowest.size(), kMostOps));
  Table by_op({"op, with those inside it", ">ms", ">calls"});
  for (const auto& [name, work] : slowest)
    by_op.add_row({name, milliseconds(work.total_us), std::to_string(work.launches)});
  return text + by_op.text();
}

}  // namespace espalier::watch
