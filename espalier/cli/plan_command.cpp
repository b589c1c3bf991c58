// espalier plan host | population | linet
#include <fmt/format.h>

#include <functional>
#include <vector>

#include "espalier/cli/commands.h"
#include "espalier/core/byte_size.h"
#include "espalier/core/device_memory.h"
#include "espalier/core/error.h"
#include "espalier/train/host_job.h"
#include "espalier/train/linet_memory.h"
#include "espalier/train/population_memory.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/site.h"
#include "espalier/watch/table.h"

namespace espalier::cli {
namespace {

using train::HostJobOptions;
using train::LinetOptions;
using train::PopulationOptions;

// The largest value of one option whose plan fits.
template <class Options>
struct Limit {
  const char* what;
  int64_t most;
  std::function<void(Options&, int64_t)> change;
};

// What differs from job to job.
template <class Options>
struct Planner {
  using Fields = std::vector<data::FieldSpec>;
  // (options, bytes of data on the device, fields, classes, device): without CUDA's own part and the budget.
  std::function<train::MemoryPlan(const Options&, int64_t, const Fields&, int64_t, at::Device)> parts;
  std::vector<Limit<Options>> limits;
};

template <class Options>
int print_plan(const Options& options, const DeviceName& name, Context& context,
               const Planner<Options>& planner) {
  if (name.kind == DeviceName::Kind::kCuda) measure_cuda_context(name.index);  // before anything starts CUDA
  const data::HostDataset dataset = load_source(options.source, context.progress());
  const c10::Device device = data::torch_device(name);
  const int64_t bytes = resident_bytes(dataset, options.resident);
  const auto residency = choose_residency(options.resident, bytes, device);
  const int64_t on_device = residency == data::Residency::kDevice ? bytes : 0;
  std::vector<data::FieldSpec> fields;
  for (const data::HostField& field : dataset.train.fields) fields.push_back(field.spec);
  const train::MemoryPlan plan =
      train::with_budget(planner.parts(options, on_device, fields, dataset.num_classes(), device), device,
                         options.device_memory);

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
  for (const Limit<Options>& limit : planner.limits) {
    const int64_t most = train::largest_fitting(
        [&](int64_t value) {
          Options larger = options;
          limit.change(larger, value);
          return planner.parts(larger, on_device, fields, dataset.num_classes(), device).total_bytes();
        },
        plan.budget_bytes, limit.most);
    fmt::print("the largest {} that fits, with the rest as it is: {}\n", limit.what, most);
  }
  return fits ? 0 : 1;
}

template <class Options>
Limit<Options> batch_limit() {
  return {"batch", 1 << 20, [](Options& options, int64_t value) { options.batch = value; }};
}

Planner<PopulationOptions> population_planner(std::vector<Limit<PopulationOptions>> limits) {
  const auto field_of = [](const PopulationOptions& options, const std::vector<data::FieldSpec>& fields) {
    return fields[train::chosen_field(options, fields)];
  };
  return {.parts =
              [=](const PopulationOptions& options, int64_t bytes, const auto& fields, int64_t classes,
                  at::Device device) {
                return train::population_parts(options, bytes, field_of(options, fields), classes, device);
              },
          .limits = std::move(limits)};
}

// Device by device, each with the lanes that live there.
int print_population(const PopulationOptions& options, Context& context) {
  const Limit<PopulationOptions> lanes{
      "number of lanes", 4096, [](PopulationOptions& larger, int64_t value) { larger.lanes = value; }};
  int status = 0;
  for (const auto& [device, number] : train::lanes_by_device(options)) {
    PopulationOptions here = options;
    here.lanes = number;
    status |=
        print_plan(here, device, context, population_planner({lanes, batch_limit<PopulationOptions>()}));
  }
  return status;
}

}  // namespace

void add_plan_command(CLI::App& app, Context& context) {
  CLI::App& plan = add_group(app, "plan", "what a run will take on its device, before it starts");
  add_job<HostJobOptions>(
      plan, context,
      {.name = "host",
       .summary = "of `espalier train host` with the same flags",
       .examples = "  espalier plan host --data cifar10:DIR --device cuda --batch 4096\n"},
      [](const HostJobOptions& options, Context& running) {
        return print_plan(one_lane(options), data::choose_device(options.device), running,
                          population_planner({batch_limit<PopulationOptions>()}));
      });
  add_job<PopulationOptions>(
      plan, context,
      {.name = "population",
       .summary = "of `espalier train population` with the same flags",
       .examples = "  espalier plan population --data cifar10:DIR --devices cuda:0 --lanes 128 --batch 64\n"},
      [](const PopulationOptions& options, Context& running) { return print_population(options, running); });
  add_job<LinetOptions>(plan, context,
                        {.name = "linet",
                         .summary = "of `espalier train linet` with the same flags",
                         .examples = "  espalier plan linet --model li_resnet50 --batch 64 --device cuda\n"},
                        [](const LinetOptions& options, Context& running) {
                          return print_plan(options, data::choose_device(options.device), running,
                                            Planner<LinetOptions>{.parts = train::linet_parts,
                                                                  .limits = {batch_limit<LinetOptions>()}});
                        });
}

}  // namespace espalier::cli
