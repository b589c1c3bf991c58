// espalier plan host | population | linet | ppo | evaluate
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "espalier/cli/commands.h"
#include "espalier/cli/flags/jobs.h"
#include "espalier/core/error.h"
#include "espalier/core/machine/device_memory.h"
#include "espalier/core/text/byte_size.h"
#include "espalier/jobs/evaluate.h"
#include "espalier/jobs/population.h"
#include "espalier/jobs/ppo.h"
#include "espalier/tensor/device.h"
#include "espalier/train/linet/trainer.h"
#include "espalier/train/memory/linet.h"
#include "espalier/train/memory/population.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard_setup.h"
#include "espalier/train/step/data_parallel.h"
#include "espalier/watch/terminal/table.h"

namespace espalier::cli {
namespace {

using jobs::EvaluateConfig;
using train::LinetConfig;
using train::MemoryPlace;
using train::PopulationConfig;
using train::PpoConfig;

// The data as it will lie on one device.
struct PlannedData {
  std::string origin;
  std::vector<data::FieldSpec> fields;
  int64_t num_classes = 1;
  train::DataNeeds needs;
  c10::Device device = c10::kCPU;
};

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
  // Without CUDA's own part and the budget.
  std::function<train::MemoryPlan(const Options&, const PlannedData&)> parts;
  std::vector<Limit<Options>> limits;
};

// As asked for, on this machine or not.
DeviceName planned_on(const std::optional<DeviceName>& wanted) {
  return wanted ? *wanted : choose_device(std::nullopt);
}

PlannedData planned_data(const train::JobConfig& options, const DeviceName& name, Context& context) {
  if (name.kind == DeviceName::Kind::kCuda) measure_cuda_context(name.index);  // before anything starts CUDA
  const data::HostDataset dataset = load_source(options.source, context.progress());
  PlannedData made{.origin = dataset.origin,
                   .num_classes = dataset.num_classes(),
                   .needs = {.bytes = resident_bytes(dataset, options.resident)},
                   .device = planned_device(name)};
  made.needs.residency = choose_residency(options.resident, made.needs.bytes, made.device);
  made.needs.num_validation = dataset.has_validation()
                                  ? dataset.validation.num_samples()
                                  : num_validation(options.resident, dataset.train.num_samples());
  for (const data::HostField& field : dataset.train.fields) made.fields.push_back(field.spec);
  return made;
}

void print_parts(const train::MemoryPlan& plan, const DeviceName& name) {
  watch::Table table({"part", ">bytes"});
  for (const MemoryPlace place : {MemoryPlace::kDevice, MemoryPlace::kDriver})
    for (const train::MemoryPart& part : plan.parts)
      if (part.place == place) table.add_row({part.what, format_byte_size(part.bytes)});
  table.add_row({"in all", format_byte_size(plan.total_bytes())});
  fmt::print("{}", table.text());
  if (plan.bytes_in(MemoryPlace::kHost) > 0) {
    watch::Table host({"pinned host memory", ">bytes"});
    for (const train::MemoryPart& part : plan.parts)
      if (part.place == MemoryPlace::kHost) host.add_row({part.what, format_byte_size(part.bytes)});
    fmt::print("{}", host.text());
  }
  for (const std::string& what : plan.unknown) fmt::print("not counted: {}\n", what);
  if (plan.context_bytes > 0)
    fmt::print("CUDA itself took {} when it started, on top\n", format_byte_size(plan.context_bytes));
  if (plan.budget_bytes == 0 && name.kind == DeviceName::Kind::kCpu)
    fmt::print("{} is no GPU: nothing limits it but the machine's memory\n", name.text());
  else if (plan.budget_bytes == 0)
    fmt::print(
        "this machine has no {}: CUDA's own share, some hundred MiB, comes on top; --device-memory 80GiB "
        "tells what fits on such a card\n",
        name.text());
  else
    fmt::print("may use {}: {}\n", format_byte_size(plan.budget_bytes),
               plan.total_bytes() <= plan.budget_bytes ? "it fits" : "it does NOT fit");
}

int status_of(const train::MemoryPlan& plan) {
  return plan.budget_bytes == 0 || plan.total_bytes() <= plan.budget_bytes ? 0 : 1;
}

// base: what the options say of data and device.
template <class Options>
int print_plan(const Options& options, const train::JobConfig& base, const DeviceName& name,
               const Planner<Options>& planner, Context& context) {
  const PlannedData data = planned_data(base, name, context);
  const train::MemoryPlan plan =
      train::with_budget(planner.parts(options, data), data.device, base.device_memory);
  fmt::print("{} on {}, data {}\n", data.origin, name.text(),
             data.needs.residency == data::Residency::kDevice ? "on the device" : "in pinned host memory");
  print_parts(plan, name);
  if (plan.budget_bytes == 0) return 0;
  for (const Limit<Options>& limit : planner.limits) {
    const int64_t most = train::largest_fitting(
        [&](int64_t value) {
          Options larger = options;
          limit.change(larger, value);
          return planner.parts(larger, data).total_bytes();
        },
        plan.budget_bytes, limit.most);
    fmt::print("the largest {} that fits, with the rest as it is: {}\n", limit.what, most);
  }
  return status_of(plan);
}

train::PopulationNeeds population_needs(const PopulationConfig& options, const PlannedData& data,
                                        const grow::HostFrame& frame) {
  train::PopulationNeeds needs{.options = options, .data = data.needs, .device = data.device};
  set_host(needs, frame);
  return needs;
}

grow::HostFrame planned_frame(const PopulationConfig& options, const PlannedData& data) {
  return frame_for(options, data.fields[chosen_field(options, data.fields)], data.num_classes);
}

// Where a network is to grow on this host.
train::GrowthSpace planned_space(const PopulationConfig& options, const grow::HostFrame& frame) {
  return train::space_of(grow::hosts().at(options.host).make, frame, grow::BlueprintRegistry());
}

template <class Options>
Limit<Options> batch_limit(int64_t ranks = 1) {
  return {ranks > 1 ? "batch of a rank" : "batch", 1 << 20,
          [](Options& options, int64_t value) { options.batch = value; }};
}

// has_grown: the networks that the job begins with have seeds; ranks: that share every batch out.
Planner<PopulationConfig> population_planner(std::vector<Limit<PopulationConfig>> limits,
                                             bool has_grown = false, int64_t ranks = 1) {
  return {.parts =
              [has_grown, ranks](const PopulationConfig& options, const PlannedData& data) {
                const grow::HostFrame frame = planned_frame(options, data);
                train::PopulationNeeds here = population_needs(options, data, frame);
                here.ranks = ranks;
                train::JobNeeds needs = jobs::needs_of(options, planned_space(options, frame));
                if (has_grown && !needs.growth) needs.growth.emplace();
                return job_parts(here, needs);
              },
          .limits = std::move(limits)};
}

// Device by device, each with the lanes that live there.
int print_population(const PopulationConfig& options, const std::string& from, Context& context) {
  const bool has_grown = !from.empty() && jobs::has_seeds(from);
  const Limit<PopulationConfig> lanes{"number of lanes", 4096,
                                      [](PopulationConfig& larger, int64_t value) { larger.lanes = value; }};
  int status = 0;
  for (const auto& [device, number] : train::lanes_by_device(options)) {
    PopulationConfig here = options;
    here.lanes = number;
    status |= print_plan(here, here, device,
                         population_planner({lanes, batch_limit<PopulationConfig>()}, has_grown), context);
  }
  return status;
}

// Device by device, each with the environments that live there, and the policy where it lives. `Options`:
// PpoConfig or EvaluateConfig.
template <class Options>
int print_environments(const Options& options, Context& context) {
  const std::vector<train::DeviceLanes> devices = train::lanes_by_device(options.population);
  const at::Device policy_device = train::policy_device_of(options);
  std::vector<train::JobNeeds::Policy> elsewhere;
  int status = 0;
  for (const auto& [device, number] : devices) {
    const auto parts = [&, number = number, device = device](const Options& job, const PlannedData& data) {
      const grow::HostFrame frame = planned_frame(job.population, data);
      train::PopulationNeeds here = population_needs(job.population, data, frame);
      const train::JobNeeds needs = jobs::needs_of(job, planned_space(job.population, frame));
      elsewhere = needs.policies;
      // As large a share of them as now.
      here.options.lanes = std::max<int64_t>(1, job.population.lanes * number / options.population.lanes);
      return job_parts(here, needs);
    };
    const Limit<Options> envs{"number of environments", 4096,
                              [](Options& larger, int64_t value) { larger.population.lanes = value; }};
    const Limit<Options> batch{"batch of an environment", 1 << 20,
                               [](Options& larger, int64_t value) { larger.population.batch = value; }};
    status |= print_plan(options, options.population, device,
                         Planner<Options>{.parts = parts, .limits = {envs, batch}}, context);
  }
  const auto lives_there = [&](const train::DeviceLanes& place) {
    return planned_device(place.device) == policy_device;
  };
  if (std::ranges::any_of(devices, lives_there) || elsewhere.empty()) return status;
  train::MemoryPlan plan = train::device_parts(policy_device);
  for (const train::JobNeeds::Policy& policy : elsewhere) plan.add(policy_parts(policy.options, policy.use));
  plan = train::with_budget(std::move(plan), policy_device, options.population.device_memory);
  fmt::print("policy on {}\n", policy_device.str());
  print_parts(plan, options.policy_device.value_or(devices.front().device));
  return status | status_of(plan);
}

Planner<LinetConfig> linet_planner(int64_t ranks) {
  return {.parts =
              [ranks](const LinetConfig& options, const PlannedData& data) {
                return train::linet_parts({.options = options,
                                           .fields = data.fields,
                                           .num_classes = data.num_classes,
                                           .data = data.needs,
                                           .device = data.device,
                                           .ranks = ranks});
              },
          .limits = {batch_limit<LinetConfig>(ranks)}};
}

// A job whose processes share every batch out, and how many of them there are.
template <class Flags>
struct RankFlags : Flags {
  int64_t ranks = 1;

  template <class Visitor>
  void visit(Visitor&& v) {
    Flags::visit(v);
    auto machine = in_group(v, kMachineFlags);
    machine({.name = "ranks",
             .help = "processes that share every batch out (docs/scaling.md): what one of them takes",
             .low = 1,
             .high = 65536},
            ranks);
  }
};

}  // namespace

void add_plan_command(CLI::App& app, Context& context) {
  CLI::App& plan = add_group(app, "plan", "what a run will take on its device, before it starts");
  add_job<RankFlags<HostFlags>>(
      plan, context,
      {.name = "host",
       .summary = "the memory that `espalier train host` takes with the same flags",
       .examples = "  espalier plan host --data cifar10:DIR --device cuda --batch 4096\n"},
      [](const RankFlags<HostFlags>& flags, Context& running) {
        PopulationConfig one = flags.one_lane();
        one.batch = train::part_of_batch(one.batch, flags.ranks);
        return print_plan(one, one, planned_on(flags.device),
                          population_planner({batch_limit<PopulationConfig>(flags.ranks)},
                                             /*has_grown=*/false, flags.ranks),
                          running);
      });
  add_job<PopulationFlags>(
      plan, context,
      {.name = "population",
       .summary = "the memory that `espalier train population` takes with the same flags",
       .examples = "  espalier plan population --data cifar10:DIR --devices cuda:0 --lanes 128 --batch 64\n"},
      [](const PopulationFlags& flags, Context& running) {
        return print_population(flags.population, flags.from, running);
      });
  add_job<RankFlags<LinetFlags>>(
      plan, context,
      {.name = "linet",
       .summary = "the memory that `espalier train linet` takes with the same flags",
       .examples = "  espalier plan linet --model li_resnet50 --batch 64 --device cuda\n"
                   "  espalier plan linet --batch 512 --ranks 8 --device cuda\n"},
      [](const RankFlags<LinetFlags>& flags, Context& running) {
        LinetConfig checked = train::checked_options(flags.linet);
        checked.batch = train::part_of_batch(checked.batch, flags.ranks);
        return print_plan(checked, checked, planned_on(checked.device), linet_planner(flags.ranks), running);
      });
  add_job<PpoFlags>(plan, context,
                    {.name = "ppo",
                     .summary = "the memory that `espalier train ppo` takes with the same flags",
                     .examples = "  espalier plan ppo --devices cuda:0 --lanes 64\n"},
                    [](const PpoFlags& flags, Context& running) {
                      // By --reward-ab two policies learn, one after the other, each with half of the
                      // networks.
                      return print_environments(
                          flags.reward_ab.empty() ? flags.ppo : flags.reward_ab_job().learning.front().ppo,
                          running);
                    });
  add_job<EvaluateFlags>(
      plan, context,
      {.name = "evaluate",
       .summary = "the memory that `espalier evaluate` takes with the same flags",
       .examples = "  espalier plan evaluate --controllers none,ppo:policy.safetensors --devices cuda:0\n"},
      [](const EvaluateFlags& flags, Context& running) {
        return print_environments(flags.evaluate, running);
      });
}

}  // namespace espalier::cli
