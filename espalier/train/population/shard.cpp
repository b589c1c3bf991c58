#include "espalier/train/population/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/machine/interrupt.h"
#include "espalier/grow/host/registry.h"
#include "espalier/grow/network_file.h"
#include "espalier/run/archive.h"
#include "espalier/train/population/setup.h"
#include "espalier/train/step/data_parallel.h"

namespace espalier::train {
namespace {

// What a collapse has to do with one slot.
enum class Blame { kNone, kItsSeed, kItsRemoval };

// good: as it was after the last good epoch; collapsed: after the one that was not. Between them may lie
// epochs of doubt.
Blame blame_for(const SlotState& good, const SlotState& collapsed) {
  if (!holds_seed(good.stage)) return collapsed.amplitude > 0 ? Blame::kItsSeed : Blame::kNone;
  const bool is_going = is_removing(good) || is_removing(collapsed) || !holds_seed(collapsed.stage);
  if (is_going) return good.amplitude > 0 ? Blame::kItsRemoval : Blame::kNone;
  const bool has_changed =
      collapsed.amplitude != good.amplitude || collapsed.blend_operator != good.blend_operator;
  return has_changed ? Blame::kItsSeed : Blame::kNone;
}

std::optional<double> measured(double value) {
  return std::isnan(value) ? std::nullopt : std::optional(value);
}

// What is known of the host before it is built; none for a host that the program defines.
std::optional<grow::CnnHostOptions> known_shape(const ShardSetup& setup) {
  if (setup.shape) return setup.shape->in(setup.frame);
  return setup.host ? std::nullopt : planned_host(setup.options, setup.frame);
}

// The host takes the options' lanes and the data's images.
ShardSetup filled_in(ShardSetup setup) {
  const PopulationConfig& options = setup.options;
  const data::FieldSpec& field =
      setup.dataset->train.fields[chosen_field(options, specs_of(setup.dataset->train))].spec;
  setup.frame = frame_for(options, field, setup.dataset->num_classes());
  setup.frame.memory_format = setup.dataset->format;
  setup.frame.lane_ids = setup.envs;
  // What a norm sees: the whole batch, or each rank's part by itself.
  const int64_t ranks = setup.batch_world->size();
  if (const auto known = known_shape(setup)) {
    const bool is_whole = ranks == 1 || options.sync_norm;
    grow::check_training(*known, is_whole ? options.batch * ranks : options.batch,
                         is_whole ? "--batch" : "--batch, of which a rank has");
  }
  if (!setup.host) setup.host = grow::hosts().at(options.host).make;
  return setup;
}

// Ranks share a split out by batches: none is larger than a rank's share of the split.
PopulationConfig at_validation(const ShardSetup& setup, int64_t num_samples) {
  PopulationConfig options = setup.options;
  const int64_t ranks = setup.batch_world->size();
  if (ranks > 1)
    options.validation_batch = std::clamp<int64_t>(
        (num_samples + ranks - 1) / ranks, 1, validation_batch(options, setup.dataset->device.is_cuda()));
  return options;
}

// Parts are cut out of a shuffled order: files are often sorted by class.
data::IteratorOptions validation_plan(const ShardSetup& setup, at::ScalarType type) {
  const int64_t num_validation = setup.dataset->validation.num_samples();
  const int64_t samples = samples_of_part(setup.options, num_validation);
  if (samples == 0 && num_validation > 0)
    fail_usage(
        "--validation-parts {}: want at most one part for each of the {} samples of the validation split",
        setup.options.validation_parts, num_validation);
  data::IteratorOptions options = evaluation_plan(at_validation(setup, samples), setup.device, type, samples);
  if (setup.options.validation_parts > 1) options.plan.order = data::SampleOrder::kShuffled;
  return options;
}

// The test is scored in batches no larger than those of validation: the plan of memory knows these.
data::IteratorOptions test_plan(const ShardSetup& setup, at::ScalarType type) {
  const int64_t num_test = setup.dataset->test.num_samples();
  PopulationConfig options = at_validation(setup, num_test);
  const int64_t validation = setup.dataset->validation.num_samples();
  if (validation > 0)
    options.validation_batch =
        scored_batch(options, setup.dataset->device.is_cuda(), samples_of_part(options, validation));
  return evaluation_plan(options, setup.device, type, num_test);
}

// The plan of the whole job, of which the lanes here are a part.
data::IteratorOptions for_job(data::IteratorOptions options, const ShardSetup& setup) {
  options.plan.split_by = setup.options.split_by;
  if (setup.envs.empty()) return options;
  options.plan.n_envs = std::ssize(setup.env_devices);
  options.plan.env_devices = setup.env_devices;
  options.envs = setup.envs;
  return options;
}

}  // namespace

Shard::Shard(ShardSetup setup)
    : setup_(filled_in(std::move(setup))),
      compute_(precision_type(options().precision, setup_.dataset->device)),
      field_(chosen_field(options(), specs_of(setup_.dataset->train))),
      train_(for_job(training_plan(options(), setup_.device, compute_), setup_), {setup_.dataset},
             data::Split::kTrain),
      validate_(validation_plan(setup_, compute_), {setup_.dataset}, data::Split::kValidation),
      test_(test_plan(setup_, compute_), {setup_.dataset}, data::Split::kTest),
      population_(setup_.host, setup_.frame, setup_.blueprints, setup_.dataset->device, compute_),
      lifecycle_(lifecycle_for(options(), population_)),
      step_(population_, train_.gather_call(0), field_,
            step_options(options(), batches_per_pass(), *setup_.dataset, *setup_.batch_world)),
      validation_(population_, validate_.gather_call(0), field_, validate_.length(),
                  evaluation_options(step_)),
      snapshots_(population_, step_, lifecycle_),
      timing_(setup_.dataset->device, options().time_every),
      lanes_(static_cast<size_t>(options().lanes)) {
  if (keeps_room()) population_.keep_room();
  // Another kind of processor may have drawn other bits.
  share_network(*setup_.batch_world, population_.host().parameters(), population_.buffers());
  begin_lanes();
}

void Shard::begin_episode(uint64_t seed, int64_t first_pass) {
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) lifecycle_.reset_lane(lane);
  step_.sync_groups(population_.reset(seed));
  step_.reset();
  epoch_ = 0;
  is_under_way_ = false;
  first_pass_ = first_pass;
  begin_lanes();
}

void Shard::begin_as(const std::vector<grow::GrownNetwork>& networks) {
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    std::vector<SlotState> states = grow::states_of(networks.at(static_cast<size_t>(lane)), population_);
    for (SlotState& state : states) state.flags &= static_cast<uint8_t>(~kSlotBarred);  // another training's
    lifecycle_.restore_lane(lane, states);
  }
  step_.sync_groups(population_.apply(lifecycle_.states()));
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
    grow::write_values(networks[static_cast<size_t>(lane)], population_, lane);
  population_.refresh();
  begin_lanes();
}

void Shard::begin_with(const std::vector<std::vector<SlotState>>& states) {
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
    lifecycle_.restore_lane(lane, states.at(static_cast<size_t>(lane)));
  step_.sync_groups(population_.apply(lifecycle_.states()));
  begin_lanes();
}

void Shard::begin_lanes() {
  std::vector<int64_t> all;
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    lanes_[static_cast<size_t>(lane)] = {
        .accuracy_before = std::vector<std::optional<double>>(static_cast<size_t>(population_.num_slots()))};
    all.push_back(lane);
  }
  if (setup_.on_failure == OnFailure::kRollBack) snapshots_.take(all);
}

void Shard::move_time() {
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    Lane& lane_state = lanes_[static_cast<size_t>(lane)];
    if (lane_state.is_retired) continue;
    for (const grow::StageMove& move : lifecycle_.begin_epoch(lane))
      if (move.to == SeedStage::kTraining)
        lane_state.accuracy_before[static_cast<size_t>(move.slot)] =
            lane_state.accuracies.empty() ? std::nullopt : std::optional(lane_state.accuracies.back());
  }
  step_.sync_groups(population_.apply(lifecycle_.states()));
  step_.begin_epoch(epoch_, first_pass_);
  is_under_way_ = true;
}

// Time moves, seeds are planted and gone, and what controllers on the device are told is uploaded.
void Shard::begin_epoch(EpochBuffer& buffer) {
  timing_.begin_step();
  if (!is_under_way_) move_time();
  const auto bare = static_cast<double>(population_.host().num_parameters());
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
    buffer.set_lane(env_of(lane),
                    {.states = lifecycle_.lane_states(lane),
                     .added_parameters = static_cast<double>(population_.num_parameters(lane)) / bare - 1,
                     .num_batches = batches_per_epoch(),
                     .is_retired = lanes_[static_cast<size_t>(lane)].is_retired});
}

// Validation leaves out, beside the whole networks, each slot that any lane has yet to decide about: its
// state tells before the epoch.
bool Shard::is_asked_about(int64_t slot) const {
  for (int64_t lane = 0; lane < lifecycle_.num_lanes(); ++lane)
    if (!lanes_[static_cast<size_t>(lane)].is_retired && is_undecided(lifecycle_.at(lane, slot))) return true;
  return false;
}

// A step that is captured anew costs the host what some dozens of replays cost the device, and empty room
// costs every replay a little: room pays where few batches lie between two decisions.
bool Shard::keeps_room() const {
  constexpr int64_t kFewBatches = 64;
  return step_.graphs().is_capturing() && batches_per_epoch() < kFewBatches;
}

Telemetry Shard::telemetry() const {
  const int64_t every = options().telemetry_every;
  return every > 0 && epoch_ % every == 0 ? Telemetry::kAll : Telemetry::kForGates;
}

std::string Shard::title() const {
  return fmt::format("{} {}/{}", options().batches_per_step > 0 ? "step" : "epoch", epoch_ + 1,
                     options().epochs);
}

SplitPart Shard::scored_part() const {
  if (epoch_ + 1 >= options().epochs) return {};
  return {.index = epoch_ / options().validate_every % options().validation_parts,
          .of = options().validation_parts};
}

int64_t Shard::num_scored() const {
  if (!is_validated()) return 0;
  const BatchRange batches = scored_part().batches(validate_.length());
  const int64_t batch = validation_batch(), all = validate_.plan().num_samples();
  return std::min(batches.end * batch, all) - std::min(batches.begin * batch, all);
}

void Shard::begin_training() {
  timing_.begin(StepPart::kTrain);
}

void Shard::queue_validation(const Progress& progress) {
  // A retired lane's running statistics moved with the batches it saw.
  if (setup_.on_failure == OnFailure::kRollBack)
    for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
      if (lanes_[static_cast<size_t>(lane)].is_retired) snapshots_.restore_values(lane);
  timing_.end(StepPart::kTrain);
  if (!is_validated()) {
    validation_.clear();
    return;
  }
  timing_.begin(StepPart::kValidation);
  std::vector<int64_t> asked;
  for (int64_t slot = 0; slot < population_.num_slots(); ++slot)
    if (is_asked_about(slot)) asked.push_back(slot);
  // Captured passes are few where they leave out all slots or none. What nobody asked about is not told.
  if (keeps_room() && !asked.empty()) {
    asked.clear();
    for (int64_t slot = 0; slot < population_.num_slots(); ++slot)
      if (population_.has_stacks(slot)) asked.push_back(slot);
  }
  validation_.pass(asked, scored_part(), tick_of(progress, title() + ", validation"));
  timing_.end(StepPart::kValidation);
}

EpochRecord Shard::finish_epoch(std::span<const LaneReadings> read) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EpochRecord record{.epoch = epoch_ + 1, .is_validated = is_validated(), .num_scored = num_scored()};
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    const auto i = static_cast<size_t>(lane);
    record.lanes.push_back({.lane = env_of(lane),
                            .outcome = lanes_[i].is_retired ? LaneOutcome::kRetired : LaneOutcome::kTrained,
                            .verdict = lanes_[i].is_retired ? Verdict::kSound : read[i].verdict,
                            .trained = read[i].trained,
                            .validated = record.is_validated ? read[i].validated : LaneScore{kNone, kNone},
                            .last_validated = read[i].validated,
                            .slots = slots_of(lane, read[i]),
                            .reward = read[i].reward});
  }
  handle_failures(record);
  // What an episode ends with is what lanes went back to: nothing comes after a collapse in its last epoch.
  if (epoch_ + 1 >= options().epochs)
    for (size_t lane = 0; lane < record.lanes.size(); ++lane)
      for (size_t slot = 0; slot < record.lanes[lane].slots.size(); ++slot)
        record.lanes[lane].slots[slot].state =
            lifecycle_.at(static_cast<int64_t>(lane), static_cast<int64_t>(slot));
  epoch_ += 1;
  is_under_way_ = false;
  return record;
}

// The states of a lane's slots and what the epoch told about their seeds.
std::vector<SlotReport> Shard::slots_of(int64_t lane, const LaneReadings& read) const {
  const Lane& lane_state = lanes_[static_cast<size_t>(lane)];
  std::vector<SlotReport> slots;
  for (size_t s = 0; s < read.slots.size(); ++s) {
    SlotReport report{.state = lifecycle_.at(lane, static_cast<int64_t>(s))};
    const LaneReadings::Slot& seed = read.slots[s];
    // A norm that is not a number was measured: its seed is not finite.
    report.measured = {
        .finite = seed.is_finite,
        .gradient_norm = seed.is_finite ? measured(seed.gradient_norm) : seed.gradient_norm,
        // A retired lane has no pass of its own: others' must not show.
        .contribution_points = lane_state.is_retired ? std::nullopt : measured(seed.contribution_points)};
    if (report.measured.gradient_norm)
      report.measured.gradient_ratio = *report.measured.gradient_norm / read.trained.gradient_norm;
    const std::optional<double>& before = lane_state.accuracy_before[s];
    if (is_validated() && before && holds_seed(report.state.stage) &&
        report.state.stage != SeedStage::kGerminated)
      report.measured.improvement_points = 100 * (read.validated.accuracy - *before);
    slots.push_back(std::move(report));
  }
  return slots;
}

// Lanes that collapsed go back, or are given up; the others' state is the one to come back to, unless it is
// in doubt.
void Shard::handle_failures(EpochRecord& record) {
  const bool rolls_back = setup_.on_failure == OnFailure::kRollBack;
  std::vector<int64_t> good;
  for (size_t i = 0; i < record.lanes.size(); ++i) {
    LaneRecord& lane = record.lanes[i];
    Lane& lane_state = lanes_[i];
    const auto here = static_cast<int64_t>(i);
    if (!lane_state.is_retired && !is_collapse(lane.verdict)) {
      const bool is_sound = lane.verdict == Verdict::kSound;
      const bool is_scored = record.num_scored > 0;
      if (is_scored) lane_state.accuracies.push_back(lane.validated.accuracy);
      if (is_scored && is_sound) lane_state.good_accuracy = lane.validated.accuracy;
      lane.good_accuracy = is_scored ? lane.validated.accuracy : lane_state.good_accuracy;
      lane_state.num_doubted = is_sound ? 0 : lane_state.num_doubted + (is_scored ? 1 : 0);
      lane_state.num_futile = 0;
      if (is_sound) good.push_back(here);
    } else if (!lane_state.is_retired && rolls_back) {
      roll_back(here, lane);
      lane.good_accuracy = lane_state.good_accuracy;
    } else if (!lane_state.is_retired) {
      retire(here, lane);
    }
    lane.rate_factor = lane_state.rate_factor;
    lane.num_rollbacks = lane_state.num_rollbacks;
  }
  if (rolls_back) snapshots_.take(good);
  for (size_t i = 0; i < record.lanes.size(); ++i)
    record.lanes[i].num_parameters = population_.num_parameters(static_cast<int64_t>(i));
}

void Shard::retire(int64_t lane, LaneRecord& record) {
  lanes_[static_cast<size_t>(lane)].is_retired = true;
  step_.freeze(lane);
  record.outcome = LaneOutcome::kRetired;
}

// What moved or was blended otherwise since the last good state is blamed and may not be tried again; where
// nothing was, the rate was too high, or the state was not good.
void Shard::roll_back(int64_t lane, LaneRecord& record) {
  Lane& lane_state = lanes_[static_cast<size_t>(lane)];
  const auto states = lifecycle_.lane_states(lane);
  const std::vector<SlotState> collapsed(states.begin(), states.end());
  snapshots_.restore(lane);
  record.outcome = LaneOutcome::kRolledBack;
  lane_state.accuracies.resize(lane_state.accuracies.size() - static_cast<size_t>(lane_state.num_doubted));
  lane_state.num_doubted = 0;
  for (int64_t slot = 0; slot < population_.num_slots(); ++slot) {
    const SlotState good = lifecycle_.at(lane, slot);
    const Blame blame = blame_for(good, collapsed[static_cast<size_t>(slot)]);
    if (blame == Blame::kNone) continue;
    lifecycle_.bar(lane, slot);
    if (blame == Blame::kItsSeed) {
      if (holds_seed(good.stage)) lifecycle_.prune(lane, slot);
      if (good.amplitude > 0) {  // it felt the seed, so what was scored is not what it is now
        record.compared_anew = true;
        lane_state.good_accuracy = std::numeric_limits<double>::quiet_NaN();
      }
    } else if (is_removing(good)) {
      lifecycle_.keep(lane, slot);
    }
    record.blamed.push_back(slot);
  }
  if (!record.blamed.empty()) {
    step_.sync_groups(population_.apply(lifecycle_.states()));
    snapshots_.take(std::span(&lane, 1));
    lane_state.num_futile = 0;
  } else if (lane_state.num_halvings < kMaxHalvings) {
    lane_state.num_halvings += 1;
    lane_state.rate_factor /= 2;
    step_.set_rate_factor(lane, lane_state.rate_factor);
  } else if (record.verdict == Verdict::kNotFinite) {
    retire(lane, record);
    return;
  } else if (lane_state.num_futile += 1; lane_state.num_futile == kMaxFutile) {
    lane_state.num_futile = 0;
    record.compared_anew = true;
  }
  lane_state.num_rollbacks += 1;
}

std::vector<LaneReport> Shard::reports_of(const EpochRecord& record) const {
  std::vector<LaneReport> reports;
  for (size_t i = 0; i < record.lanes.size(); ++i) {
    const LaneRecord& lane = record.lanes[i];
    if (lane.outcome != LaneOutcome::kTrained) continue;
    reports.push_back({.lane = lane.lane,
                       .epoch = record.epoch,
                       .num_epochs = options().epochs,
                       .train_loss = lane.trained.loss,
                       .train_accuracy = lane.trained.accuracy,
                       .is_validated = record.is_validated,
                       .validation_loss = lane.last_validated.loss,
                       .validation_accuracy = lane.last_validated.accuracy,
                       .accuracies = lanes_[i].accuracies,
                       .host_gradient_norm = lane.trained.gradient_norm,
                       .slots = lane.slots});
  }
  return reports;
}

void Shard::act(int64_t lane, LaneRecord& record, const SeedAction& action) {
  record.action = action;
  if (action.op == SeedOp::kWait) return;
  const auto slot = static_cast<size_t>(action.slot);
  const auto measured = slot < record.slots.size() ? record.slots[slot].measured : grow::SeedMeasurements{};
  record.gate = lifecycle_.act(lane, action, measured);
}

GraphWork Shard::graph_work() const {
  GraphWork all = step_.graphs().work();
  all += validation_.graphs().work();
  return all;
}

Evaluation::Tick Shard::tick_of(const Progress& progress, const std::string& title) const {
  if (!progress) return {};
  return [&progress, title](int64_t done, int64_t total) { progress(title, done, total); };
}

void Shard::visit_state(run::StateArchive& archive) {
  archive.value("epoch", epoch_);
  archive.value("is_under_way", is_under_way_);
  archive.value("first_pass", first_pass_);
  visit_lanes(archive);
  visit_networks(archive);
  archive.part("step", [&] { step_.visit_state(archive); });
  if (setup_.on_failure == OnFailure::kRollBack)
    archive.part("good", [&] { snapshots_.visit_state(archive); });
}

void Shard::visit_lanes(run::StateArchive& archive) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& lane_state = lanes_[i];
    archive.part(archive.lane_name(static_cast<int64_t>(i)), [&] {
      archive.value("accuracies", lane_state.accuracies);
      archive.value("good_accuracy", lane_state.good_accuracy);
      std::vector<double> before;
      for (const std::optional<double>& accuracy : lane_state.accuracy_before)
        before.push_back(accuracy.value_or(kNone));
      archive.list("accuracy_before", before);
      if (archive.is_loading())
        for (size_t slot = 0; slot < lane_state.accuracy_before.size(); ++slot)
          lane_state.accuracy_before[slot] =
              std::isnan(before.at(slot)) ? std::nullopt : std::optional(before.at(slot));
      archive.value("rate_factor", lane_state.rate_factor);
      archive.value("num_halvings", lane_state.num_halvings);
      archive.value("num_rollbacks", lane_state.num_rollbacks);
      archive.value("num_futile", lane_state.num_futile);
      archive.value("num_doubted", lane_state.num_doubted);
      archive.value("is_retired", lane_state.is_retired);
    });
  }
}

// The stages, then the seeds that these say there are, then the values of all of it.
void Shard::visit_networks(run::StateArchive& archive) {
  uint64_t seed = population_.host().frame().seed;
  archive.value("seed", seed);
  std::vector<SlotState> states(lifecycle_.states().begin(), lifecycle_.states().end());
  std::vector<SlotState> applied(population_.applied().begin(), population_.applied().end());
  archive.lane_list("states", states);
  archive.lane_list("applied_states", applied);
  if (archive.is_loading()) {
    step_.sync_groups(population_.reset(seed));
    step_.reset();
    const auto slots = static_cast<size_t>(population_.num_slots());
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      lifecycle_.restore_lane(static_cast<int64_t>(lane), std::span(states).subspan(lane * slots, slots));
    step_.sync_groups(population_.apply(applied));
  }
  for (const lanes::NamedParameter& named : population_.host().parameters())
    archive.lane_tensor("host." + named.name, named.parameter->storage());
  for (const grow::Host::Buffer& buffer : population_.host().buffers())
    archive.lane_tensor("host." + buffer.name, buffer.tensor);
  const OptimizedGroup& host = step_.optimizers().groups().front();
  for (size_t i = 0; i < host.optimizer->state().size(); ++i)
    archive.lane_tensor(fmt::format("optimizer.host.{}", i), host.optimizer->state()[i]);
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    std::vector<NamedTensor> values = population_.lane_values(lane);
    std::ranges::move(step_.optimizers().lane_state(lane), std::back_inserter(values));
    for (const NamedTensor& value : values)
      if (!value.name.starts_with("host.") && !value.name.starts_with("optimizer.host."))
        archive.tensor(fmt::format("{}.{}", archive.lane_name(lane), value.name), value.tensor);
  }
  if (archive.is_loading()) population_.refresh();
}

std::vector<LaneScore> Shard::test(const Progress& progress) {
  TrainStepOptions options = evaluation_options(step_);
  options.graphs.graphs = Graphs::kOff;  // once: nothing to replay
  Evaluation evaluation(population_, test_.gather_call(0), field_, test_.length(), options);
  return evaluation.score(tick_of(progress, "test"));
}

}  // namespace espalier::train
