#include "bench/growing/growing_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "bench/first_step.h"
#include "bench/growing/model.h"
#include "bench/host_floor.h"
#include "bench/random_images.h"
#include "bench/scratch_folder.h"
#include "espalier/core/error.h"
#include "espalier/data/resident.h"
#include "espalier/grow/host/registry.h"
#include "espalier/lanes/conv/choice.h"
#include "espalier/tensor/device.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/population/shard.h"
#include "espalier/train/population/trainer.h"

namespace espalier::bench {
namespace {

struct Seed {
  int64_t lane;
  size_t slot;  // action index
  int32_t blueprint;
};

// Where the seeds stand: spread over lanes and slots by a stride that meets every place once, all blueprints
// but noop in turn. bench/peers/growing_torch.py does the same.
std::vector<Seed> seeds_of(int64_t count, int64_t lanes, int64_t slots, int32_t num_blueprints) {
  const int64_t places = lanes * slots;
  if (count > places)
    fail_usage("--seeds {}: want at most {}, one in each of {} slots of {} networks", count, places, slots,
               lanes);
  int64_t stride = std::max<int64_t>(1, places * 2 / 9);
  while (std::gcd(stride, places) != 1) ++stride;
  std::vector<Seed> seeds;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = i * stride % places;
    seeds.push_back({place / slots, static_cast<size_t>(place % slots),
                     static_cast<int32_t>(1 + i % (num_blueprints - 1))});
  }
  return seeds;
}

// Two of three are felt, the third still learns beside its host; operators in turn.
SlotState state_of(const Seed& seed, int64_t i) {
  SlotState state{};
  state.stage = i % 3 == 2 ? SeedStage::kTraining : SeedStage::kHolding;
  state.blueprint = seed.blueprint;
  state.num_seeds = 1;
  state.target = 1;
  state.amplitude = state.stage == SeedStage::kHolding ? 1.0f : 0.0f;
  state.blend_operator = static_cast<BlendOperator>(i % kNumBlendOperators);
  return state;
}

using LaneStates = std::vector<std::vector<SlotState>>;  // [lanes][slots]

LaneStates states_of(const std::vector<Seed>& seeds, int64_t lanes, int64_t slots) {
  LaneStates states(static_cast<size_t>(lanes), std::vector<SlotState>(static_cast<size_t>(slots)));
  for (size_t i = 0; i < seeds.size(); ++i)
    states[static_cast<size_t>(seeds[i].lane)][seeds[i].slot] = state_of(seeds[i], static_cast<int64_t>(i));
  return states;
}

SeedWork total_work(const std::vector<Seed>& seeds, train::Shard& shard, int64_t batch,
                    int64_t bytes_a_value) {
  SeedWork all;
  std::set<std::pair<size_t, int32_t>> stacks;
  for (const Seed& seed : seeds) {
    const grow::SlotSpec& slot = shard.population().slots()[seed.slot];
    all += work_of(shard.population().blueprints().at(seed.blueprint).name,
                   {.channels = slot.channels, .height = slot.height, .width = slot.width}, batch,
                   bytes_a_value);
    stacks.insert({seed.slot, seed.blueprint});
  }
  all.stacks = static_cast<double>(stacks.size());
  return all;
}

struct Times {
  Timing step, validation;
};

Timing time_steps(train::Shard& shard, const TimingPlan& plan) {
  train::TrainStep& step = shard.step();
  step.begin_epoch(0);
  int64_t done = 0;
  return time_calls(step.device(), plan, [&] {
    if (done++ % shard.batches_per_epoch() == 0) step.begin_epoch(0);
    step.run();
  });
}

Times time_shard(train::Shard& shard, const GrowingBenchOptions& options, bool is_grown) {
  std::vector<int64_t> slots;  // whose seeds are left out in turn, as decisions want it
  for (int64_t slot = 0; is_grown && slot < shard.population().num_slots(); ++slot)
    if (shard.population().has_stacks(slot)) slots.push_back(slot);
  const TimingPlan steps = options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{8, 15, 5};
  const TimingPlan passes = options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{3, 7, 1};
  Times times;
  times.step = time_steps(shard, steps);
  times.validation = time_calls(shard.step().device(), passes, [&] { shard.validation().pass(slots); });
  return times;
}

// An epoch as users run it, in seconds: reports and decisions too, though nobody asks for any.
double time_epoch(const train::ShardSetup& setup, const LaneStates& states, int64_t steps) {
  train::PopulationConfig training = setup.options;
  training.batches_per_step = steps;
  train::ShardSetup shard = setup;
  shard.options = training;
  const c10::Device device = setup.dataset->device;
  train::PopulationTrainer population(training, {shard}, device, train::OnFailure::kRollBack);
  population.begin_with(states);
  const auto nobody = train::controllers().at("none").make({});
  // On a GPU the first epochs capture. Nothing is captured on the CPU, where an epoch can take minutes.
  const int num_warm = device.is_cpu() ? 0 : 2;
  for (int i = 0; i < num_warm; ++i) population.train_epoch(*nobody);
  return population.train_epoch(*nobody).seconds;
}

// Steps with seeds of one kind each: in one slot of every network, and in every slot of every fourth. So
// stacks, bytes and products come in ratios that tell their prices apart.
std::vector<WorkPoint> steps_of_one_kind(const train::ShardSetup& setup, const GrowingBenchOptions& options,
                                         int64_t bytes_a_value) {
  const TimingPlan plan = options.bench.smoke ? TimingPlan{1, 1, 1} : TimingPlan{4, 5, 3};
  const int64_t lanes = setup.options.lanes;
  std::vector<WorkPoint> points;
  for (int32_t kind = 1;; ++kind)
    for (const bool is_wide : {false, true}) {
      train::Shard shard(setup);
      if (kind == shard.population().blueprints().size()) return points;
      const int64_t slots = shard.population().num_slots();
      std::vector<Seed> seeds;
      for (int64_t lane = 0; lane < lanes; lane += is_wide ? 4 : 1)
        for (int64_t slot = is_wide ? 0 : kind % slots; slot < (is_wide ? slots : kind % slots + 1); ++slot)
          seeds.push_back({lane, static_cast<size_t>(slot), kind});
      shard.begin_with(states_of(seeds, lanes, slots));
      points.push_back(
          {total_work(seeds, shard, setup.options.batch, bytes_a_value), time_steps(shard, plan).median_us});
    }
}

// What the bench trains, with --smoke in small.
train::PopulationConfig config_of(const GrowingBenchOptions& options) {
  train::PopulationConfig training;
  training.lanes = options.bench.smoke ? std::min<int64_t>(options.lanes, 4) : options.lanes;
  training.batch = options.bench.smoke ? std::min<int64_t>(options.batch, 8) : options.batch;
  training.precision = options.precision;
  return training;
}

// The model's row beside the measured one, its line for machines, and its sentence.
std::string add_prediction(const GrowingModel& model, const SeedWork& work, const Timing& measured,
                           const std::string& shapes, Report& report) {
  const double predicted_us = model.at(work);
  const double error = predicted_us / measured.median_us - 1;
  const std::string far =
      fmt::format("{:.1f} % {} what was measured", 100 * std::abs(error), error < 0 ? "below" : "above");
  report.add({.name = fmt::format("cost model, {:.0f} stacks: a step", work.stacks),
              .shapes = shapes,
              .timing = {.median_us = predicted_us, .best_us = predicted_us},
              .note = "predicted; " + far});
  report.add_line({{"model", "growing step"},
                   {"shapes", shapes},
                   {"bare_us", model.bare_us},
                   {"stack_us", model.stack_us},
                   {"byte_us", model.byte_us},
                   {"flop_us", model.flop_us},
                   {"mean_error", model.mean_error},
                   {"largest_error", model.largest_error},
                   {"stacks", work.stacks},
                   {"bytes", work.bytes},
                   {"flops", work.flops},
                   {"predicted_us", predicted_us},
                   {"measured_us", measured.median_us},
                   {"error", error}});
  return fmt::format(
      "cost model: {} (steps with seeds of one kind: {:.1f} % off on average, {:.1f} % at most) predicts "
      "{:.1f} "
      "us, {}\n",
      model.text(), 100 * model.mean_error, 100 * model.largest_error, predicted_us, far);
}

// Our first step of the same networks, for peers to make too.
void write_growing_step(const std::string& path, const train::ShardSetup& setup, const LaneStates& states) {
  train::ShardSetup plain = setup;
  plain.options = first_step_config(plain.options);
  train::Shard shard(plain);
  shard.begin_with(states);
  stir(shard.population());
  write_first_step(path, shard);
}

}  // namespace

std::string GrowingEpoch::parts_text() const {
  return fmt::format("steps and validation, timed apart, add up to {:.3f} s", sum_s);
}

GrowingEpochs measure_growing(const GrowingBenchOptions& options, const MachineRates& rates, Report& report,
                              const Progress& progress) {
  const DeviceName name = choose_device(options.device);
  const c10::Device device = torch_device(name);
  lanes::set_conv_choosing(options.deterministic ? lanes::ConvChoosing::kFixed
                                                 : lanes::ConvChoosing::kMeasure);
  const train::PopulationConfig training = config_of(options);
  const at::ScalarType type = train::precision_type(options.precision, device);
  const int64_t num_seeds = options.bench.smoke ? std::min<int64_t>(options.seeds, 7) : options.seeds;
  const auto dataset = data::make_resident(
      random_images(), {.validation = options.bench.smoke ? 64 : options.validation}, device, progress);
  const train::ShardSetup setup{.options = training, .dataset = dataset, .device = name};
  const std::string shapes = fmt::format("{} x {}, cifar_baseline", training.lanes, training.batch);

  train::Shard bare(setup);
  const Times without = time_shard(bare, options, /*is_grown=*/false);

  train::Shard grown(setup);
  const int64_t num_slots = grown.population().num_slots();
  const std::vector<Seed> seeds =
      seeds_of(num_seeds, training.lanes, num_slots, grown.population().blueprints().size());
  const LaneStates states = states_of(seeds, training.lanes, num_slots);
  grown.begin_with(states);
  const Times with = time_shard(grown, options, /*is_grown=*/true);

  const auto bytes_a_value = static_cast<int64_t>(c10::elementSize(type));
  const SeedWork work = total_work(seeds, grown, training.batch, bytes_a_value);
  const HostSize batch{training.lanes, training.batch, grow::hosts().at(training.host).cnn->base_channels};
  HostSize split = batch;
  split.samples = dataset->validation.num_samples();
  const double bare_floor_us = step_floor_us(batch, bytes_a_value, rates),
               grown_floor_us = bare_floor_us + rates.floor_us(work.bytes, work.flops),
               validation_floor_us = scoring_floor_us(split, bytes_a_value, rates);
  report.add({.name = fmt::format("espalier, {} seeds: a step", seeds.size()),
              .shapes = shapes,
              .timing = with.step,
              .floor_us = grown_floor_us,
              .note = fmt::format("{}; floor: what the hosts' layers and the seeds' move and multiply",
                                  type_name(type))});
  std::string model;
  if (options.model && !seeds.empty()) {
    const GrowingModel fitted =
        fit_growing(without.step.median_us, steps_of_one_kind(setup, options, bytes_a_value));
    model = add_prediction(fitted, work, with.step, shapes, report);
  }
  report.add({.name = "espalier, bare: a step",
              .shapes = shapes,
              .timing = without.step,
              .floor_us = bare_floor_us});
  report.add({.name = fmt::format("espalier, {} seeds: validation", seeds.size()),
              .shapes = shapes,
              .timing = with.validation,
              .note = fmt::format("{} samples, and without each of {} slots",
                                  dataset->validation.num_samples(), num_slots)});
  report.add({.name = "espalier, bare: validation",
              .shapes = shapes,
              .timing = without.validation,
              .floor_us = validation_floor_us});
  if (options.peers) {
    const ScratchFolder scratch("", "growing");
    const std::string first_step = (scratch.path() / "first_step.safetensors").string();
    write_growing_step(first_step, setup, states);
    report.add_peers({"growing_torch.py"},
                     {"--device", name.text(), "--lanes", std::to_string(training.lanes), "--batch",
                      std::to_string(training.batch), "--seeds", std::to_string(num_seeds), "--dtype",
                      type == at::kFloat ? "fp32" : "bf16", "--first-step", first_step});
  }
  const int64_t steps = options.bench.smoke ? std::min<int64_t>(options.steps, 2) : options.steps;
  const auto epoch_of = [&](const LaneStates& seeded, const Times& parts, double floor_us) {
    const auto sum_us = [&](double step_us, double validation_us) {
      return static_cast<double>(steps) * step_us + validation_us;
    };
    return GrowingEpoch{.seconds = time_epoch(setup, seeded, steps),
                        .sum_s = sum_us(parts.step.median_us, parts.validation.median_us) / 1e6,
                        .floor_s = sum_us(floor_us, validation_floor_us) / 1e6};
  };
  return {.grown = epoch_of(states, with, grown_floor_us),
          .bare = epoch_of({}, without, bare_floor_us),
          .num_seeds = std::ssize(seeds),
          .num_steps = steps,
          .model = model};
}

std::string run_growing_bench(const GrowingBenchOptions& options, const std::string& commit,
                              const Progress& progress) {
  const c10::Device device = torch_device(choose_device(options.device));
  Report report("growing", device, commit, options.bench);
  const MachineRates rates =
      measure_rates(device, train::precision_type(options.precision, device), options.bench.smoke);
  const GrowingEpochs epochs = measure_growing(options, rates, report, progress);
  return report.text() +
         fmt::format(
             "an epoch of {} steps and a validation: {:.3f} s with {} seeds ({}), {:.3f} s without ({})\n",
             epochs.num_steps, epochs.grown.seconds, epochs.num_seeds, epochs.grown.parts_text(),
             epochs.bare.seconds, epochs.bare.parts_text()) +
         epochs.model;
}

}  // namespace espalier::bench
