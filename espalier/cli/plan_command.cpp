// espalier plan host, espalier plan population
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "espalier/cli/commands.h"
#include "espalier/core/byte_size.h"
#include "espalier/core/device_memory.h"
#include "espalier/core/error.h"
#include "espalier/train/host_job.h"
#include "espalier/train/population_memory.h"
#include "espalier/train/population_setup.h"
#include "espalier/watch/table.h"

namespace espalier::cli {
namespace {

using train::HostJobOptions;
using train::PopulationOptions;

// The largest value of one option whose plan fits.
using Change = void (*)(PopulationOptions&, int64_t);
struct Limit {
  const char* what;
  int64_t most;
  Change change;
};

int print_plan(const PopulationOptions& options, Context& context, const std::vector<Limit>& limits) {
  const DeviceName name = data::choose_device(options.device);
  if (name.kind == DeviceName::Kind::kCuda) measure_cuda_context(name.index);  // before anything starts CUDA
  const data::HostDataset dataset = load_source(options.source, context.progress());
  const c10::Device device = data::torch_device(name);
  const int64_t bytes = resident_bytes(dataset, options.resident);
  const auto residency = choose_residency(options.resident, bytes, device);
  const int64_t on_device = residency == data::Residency::kDevice ? bytes : 0;
  std::vector<data::FieldSpec> fields;
  for (const data::HostField& field : dataset.train.fields) fields.push_back(field.spec);
  const data::FieldSpec field = fields[train::chosen_field(options, fields)];
  const train::MemoryPlan plan = plan_population(options, on_device, field, dataset.num_classes());

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
  const bool fits = plan.total_bytes() <= plan.budget_bytes;
  fmt::print("may use {}: {}\n", format_byte_size(plan.budget_bytes), fits ? "it fits" : "it does NOT fit");
  for (const Limit& limit : limits) {
    const int64_t most = train::largest_fitting(
        [&](int64_t value) {
          PopulationOptions larger = options;
          limit.change(larger, value);
          return population_parts(larger, on_device, field, dataset.num_classes(), device).total_bytes();
        },
        plan.budget_bytes, limit.most);
    fmt::print("the largest {} that fits, with the rest as it is: {}\n", limit.what, most);
  }
  return fits ? 0 : 1;
}

const Limit kBatch{"batch", 1 << 20,
                   [](PopulationOptions& options, int64_t value) { options.batch = value; }};
const Limit kLanes{"number of lanes", 4096,
                   [](PopulationOptions& options, int64_t value) { options.lanes = value; }};

}  // namespace

void add_plan_command(CLI::App& app, Context& context) {
  CLI::App& plan = add_group(app, "plan", "what a run will take on its device, before it starts");
  add_job<HostJobOptions>(
      plan, context,
      {.name = "host",
       .summary = "of `espalier train host` with the same flags",
       .examples = "  espalier plan host --data cifar10:DIR --device cuda --batch 4096\n"},
      [](const HostJobOptions& options, Context& running) {
        return print_plan(one_lane(options), running, {kBatch});
      });
  add_job<PopulationOptions>(
      plan, context,
      {.name = "population",
       .summary = "of `espalier train population` with the same flags",
       .examples = "  espalier plan population --data cifar10:DIR --device cuda --lanes 128 --batch 64\n"},
      [](const PopulationOptions& options, Context& running) {
        return print_plan(options, running, {kLanes, kBatch});
      });
}

}  // namespace espalier::cli
