// espalier plan host: what a run will take on its device, before it starts
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "espalier/cli/commands.h"
#include "espalier/core/byte_size.h"
#include "espalier/core/device_memory.h"
#include "espalier/core/error.h"
#include "espalier/train/host_job.h"
#include "espalier/watch/table.h"

namespace espalier::cli {
namespace {

using train::HostJobOptions;

int plan_host(const HostJobOptions& options, Context& context) {
  const DeviceName name = data::choose_device(options.device);
  if (name.kind == DeviceName::Kind::kCuda) measure_cuda_context(name.index);  // before anything starts CUDA
  const data::HostDataset dataset = load_source(options.source, context.progress());
  const int64_t bytes = resident_bytes(dataset, options.resident);
  const auto residency = choose_residency(options.resident, bytes, data::torch_device(name));
  const int64_t on_device = residency == data::Residency::kDevice ? bytes : 0;
  const data::FieldSpec& field = dataset.train.fields.front().spec;
  const train::MemoryPlan plan = plan_host_job(options, on_device, field);

  watch::Table table({"part", ">bytes"});
  for (const train::MemoryPart& part : plan.parts) table.add_row({part.what, format_byte_size(part.bytes)});
  table.add_row({"in all", format_byte_size(plan.total_bytes())});
  fmt::print("{} on {}, data {}\n{}", dataset.origin, name.text(),
             residency == data::Residency::kDevice ? "on the device" : "in pinned host memory", table.text());
  if (plan.context_bytes > 0)
    fmt::print("CUDA itself took {} when it started, on top\n", format_byte_size(plan.context_bytes));
  if (plan.budget_bytes == 0) {
    fmt::print("{} is no GPU: nothing limits it but the machine's memory\n", name.text());
    return 0;
  }
  const int64_t most = train::largest_fitting(
      [&](int64_t batch) {
        HostJobOptions larger = options;
        larger.batch = batch;
        return plan_host_job(larger, on_device, field).total_bytes();
      },
      plan.budget_bytes, 1 << 20);
  fmt::print("may use {}: {}; the largest batch that fits is {}\n", format_byte_size(plan.budget_bytes),
             plan.total_bytes() <= plan.budget_bytes ? "it fits" : "it does NOT fit", most);
  return plan.total_bytes() <= plan.budget_bytes ? 0 : 1;
}

}  // namespace

void add_plan_command(CLI::App& app, Context& context) {
  CLI::App& plan = add_group(app, "plan", "what a run will take on its device, before it starts");
  add_job<HostJobOptions>(
      plan, context,
      {.name = "host",
       .summary = "of `espalier train host` with the same flags",
       .examples = "  espalier plan host --data cifar10:DIR --device cuda --batch 4096\n"},
      plan_host);
}

}  // namespace espalier::cli
