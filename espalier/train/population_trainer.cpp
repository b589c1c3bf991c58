#include "espalier/train/population_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/interrupt.h"
#include "espalier/train/joint_epoch.h"
#include "espalier/train/population_setup.h"
#include "espalier/train/state_archive.h"

namespace espalier::train {
namespace {

// Seeds that a counterfactual says something about: before, nothing goes through them.
bool is_felt(const SlotState& state) {
  return holds_seed(state.stage) && state.amplitude > 0;
}

bool is_undecided(const SlotState& state) {
  return is_felt(state) && state.stage != SeedStage::kFossilized;
}

bool any_for_gates(std::span<const SlotState> states) {
  return std::ranges::any_of(
      states, [](const SlotState& state) { return tells_norm(Telemetry::kForGates, state.stage); });
}

bool is_sound(const LaneRecord& record) {
  return record.trained.non_finite == 0 && std::isfinite(record.validated.loss);
}

}  // namespace

namespace {

// The host takes the options' lanes and the data's images.
TrainerSetup filled_in(TrainerSetup setup, const PopulationOptions& options) {
  const data::FieldSpec& field =
      setup.dataset->train.fields[chosen_field(options, specs_of(setup.dataset->train))].spec;
  setup.host.lanes = options.lanes;
  setup.host.in_channels = field.channels;
  setup.host.height = field.height;
  setup.host.width = field.width;
  setup.host.num_classes = setup.dataset->num_classes();
  setup.host.lane_ids = setup.envs;
  return setup;
}

// The plan of the whole job, of which the lanes here are a part.
data::IteratorOptions of_job(data::IteratorOptions options, const TrainerSetup& setup) {
  if (setup.envs.empty()) return options;
  options.plan.n_envs = std::ssize(setup.env_devices);
  options.plan.env_devices = setup.env_devices;
  options.envs = setup.envs;
  return options;
}

}  // namespace

PopulationTrainer::PopulationTrainer(const PopulationOptions& options, TrainerSetup setup)
    : options_(options),
      setup_(filled_in(std::move(setup), options)),
      compute_(precision_type(options.precision, setup_.dataset->device)),
      field_(chosen_field(options, specs_of(setup_.dataset->train))),
      train_(of_job(training_plan(options, setup_.device, compute_), setup_), {setup_.dataset},
             data::Split::kTrain),
      validate_(evaluation_plan(options, setup_.device, compute_), {setup_.dataset},
                data::Split::kValidation),
      test_(evaluation_plan(options, setup_.device, compute_), {setup_.dataset}, data::Split::kTest),
      population_(setup_.host, setup_.blueprints, setup_.dataset->device, compute_),
      lifecycle_(lifecycle_for(options, population_)),
      step_(population_, train_.gather_call(0), field_,
            step_options(options, train_.length(), compute_, *setup_.dataset)),
      validation_(population_, validate_.gather_call(0), field_, validate_.length(),
                  evaluation_options(step_, compute_, *setup_.dataset)),
      snapshots_(population_, step_, lifecycle_),
      timing_(setup_.dataset->device, options.time_every),
      lanes_(static_cast<size_t>(options.lanes)) {
  if (!setup_.controller) setup_.controller = controller_for(options, population_.blueprints());
  begin_lanes();
}

void PopulationTrainer::begin_episode(uint64_t seed, int64_t data_epoch) {
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) lifecycle_.reset_lane(lane);
  step_.follow(population_.begin_anew(seed));
  step_.begin_anew();
  epoch_ = 0;
  is_under_way_ = false;
  first_data_epoch_ = data_epoch;
  begin_lanes();
}

void PopulationTrainer::begin_lanes() {
  std::vector<int64_t> all;
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    lanes_[static_cast<size_t>(lane)] = {
        .accuracy_before = std::vector<std::optional<double>>(static_cast<size_t>(population_.num_slots()))};
    all.push_back(lane);
  }
  if (setup_.on_failure == OnFailure::kRollBack) snapshots_.take(all);
}

void PopulationTrainer::move_time() {
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    Lane& of = lanes_[static_cast<size_t>(lane)];
    if (of.is_retired) continue;
    for (const grow::StageMove& move : lifecycle_.begin_epoch(lane))
      if (move.to == SeedStage::kTraining)
        of.accuracy_before[static_cast<size_t>(move.slot)] =
            of.accuracies.empty() ? std::nullopt : std::optional(of.accuracies.back());
  }
  step_.follow(population_.apply(lifecycle_.states()));
  step_.begin_epoch(epoch_, first_data_epoch_ + epoch_);
  batches_done_ = 0;
  is_under_way_ = true;
}

// Time moves, seeds are planted and gone, and what controllers on the device are told is uploaded.
void PopulationTrainer::begin_epoch(EpochBuffer& buffer) {
  timing_.begin_step();
  if (!is_under_way_) move_time();
  const auto bare = static_cast<double>(grow::num_parameters(setup_.host));
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
    buffer.set_lane(env_of(lane), lifecycle_.lane_states(lane),
                    static_cast<double>(population_.num_parameters(lane)) / bare - 1);
}

// Validation leaves out, beside the whole networks, each slot that any lane has yet to decide about: its
// state tells before the epoch.
bool PopulationTrainer::is_asked_about(int64_t slot) const {
  for (int64_t lane = 0; lane < lifecycle_.num_lanes(); ++lane)
    if (!lanes_[static_cast<size_t>(lane)].is_retired && is_undecided(lifecycle_.at(lane, slot))) return true;
  return false;
}

Telemetry PopulationTrainer::telemetry() const {
  const int64_t every = options_.telemetry_every;
  return every > 0 && epoch_ % every == 0 ? Telemetry::kAll : Telemetry::kForGates;
}

void PopulationTrainer::queue_epoch(const Progress& progress) {
  const std::string title = fmt::format("epoch {}/{}", epoch_ + 1, options_.epochs);
  step_.gather_seed_norms(telemetry() == Telemetry::kAll || any_for_gates(lifecycle_.states()));
  timing_.begin(StepPart::kTrain);
  while (batches_done_ < steps_per_epoch()) {
    throw_if_interrupted();
    step_.run();
    batches_done_ += 1;
    if (at_batch_) at_batch_();
    if (progress) progress(title, batches_done_, steps_per_epoch());
  }
  // A retired lane's running statistics moved with the batches it saw.
  if (setup_.on_failure == OnFailure::kRollBack)
    for (int64_t lane = 0; lane < population_.num_lanes(); ++lane)
      if (lanes_[static_cast<size_t>(lane)].is_retired) snapshots_.restore_values(lane);
  timing_.end(StepPart::kTrain);
  timing_.begin(StepPart::kValidation);
  std::vector<int64_t> asked;
  for (int64_t slot = 0; slot < population_.num_slots(); ++slot)
    if (is_asked_about(slot)) asked.push_back(slot);
  validation_.pass(asked, tick_of(progress, title + ", validation"));
  timing_.end(StepPart::kValidation);
}

EpochRecord PopulationTrainer::train_epoch(const Progress& progress) {
  if (!buffer_) {
    std::vector<int64_t> all(static_cast<size_t>(population_.num_lanes()));
    std::iota(all.begin(), all.end(), 0);
    buffer_ = std::make_unique<EpochBuffer>(std::vector<std::vector<int64_t>>{all}, population_.num_slots(),
                                            step_.device());
  }
  PopulationTrainer* const self = this;
  return train_together({&self, 1}, *buffer_, *setup_.controller, progress);
}

EpochRecord PopulationTrainer::settle_epoch(const EpochBuffer::Sums& sums) {
  EpochRecord record{.epoch = epoch_ + 1};
  const std::vector<LaneMetrics> trained = StepMetrics::means(sums.trained, step_.steps_done());
  const std::vector<LaneScore> validated = Evaluation::scores(sums.validated.select(0, 0));
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    const auto i = static_cast<size_t>(lane);
    record.lanes.push_back({.lane = env_of(lane),
                            .outcome = lanes_[i].is_retired ? LaneOutcome::kRetired : LaneOutcome::kTrained,
                            .trained = trained[i],
                            .validated = validated[i]});
  }
  measure_slots(record, sums);
  settle_failures(record);
  epoch_ += 1;
  is_under_way_ = false;
  return record;
}

// The states of every slot and what the epoch told about its seed.
void PopulationTrainer::measure_slots(EpochRecord& record, const EpochBuffer::Sums& sums) const {
  for (int64_t slot = 0; slot < population_.num_slots(); ++slot) {
    const auto s = static_cast<size_t>(slot);
    const bool is_asked = is_asked_about(slot);
    const auto without = Evaluation::scores(sums.validated.select(0, 1 + slot));
    for (size_t i = 0; i < record.lanes.size(); ++i) {
      LaneRecord& lane = record.lanes[i];
      SlotReport report{.state = lifecycle_.at(static_cast<int64_t>(i), slot)};
      if (holds_seed(report.state.stage) && report.state.stage != SeedStage::kGerminated) {
        // What is not told must not depend on whether another lane's gate asked for it.
        const double norm = tells_norm(telemetry(), report.state.stage) ? lane.trained.slots[s] : 0;
        report.measured.finite = is_sound(lane) && std::isfinite(norm);
        // A seed without parameters has no gradients to measure.
        if (norm != 0) {
          report.measured.gradient_norm = norm;
          report.measured.gradient_ratio = norm / lane.trained.gradient_norm;
        }
        if (const auto& before = lanes_[i].accuracy_before[s])
          report.measured.improvement_points = 100 * (lane.validated.accuracy - *before);
      }
      if (is_asked && is_felt(report.state))
        report.measured.contribution_points = 100 * (lane.validated.accuracy - without[i].accuracy);
      lane.slots.push_back(report);
    }
  }
}

// Lanes that failed go back, or are given up; the others' state is the one to come back to.
void PopulationTrainer::settle_failures(EpochRecord& record) {
  const bool rolls_back = setup_.on_failure == OnFailure::kRollBack;
  std::vector<int64_t> good;
  for (size_t i = 0; i < record.lanes.size(); ++i) {
    LaneRecord& lane = record.lanes[i];
    Lane& of = lanes_[i];
    const auto here = static_cast<int64_t>(i);
    if (!of.is_retired && is_sound(lane)) {
      of.accuracies.push_back(lane.validated.accuracy);
      good.push_back(here);
    } else if (!of.is_retired) {
      if (rolls_back) snapshots_.restore(here);
      if (rolls_back && of.num_rollbacks < kMaxRollbacks) {
        of.num_rollbacks += 1;
        of.rate_factor /= 2;
        step_.set_rate_factor(here, of.rate_factor);
        lane.outcome = LaneOutcome::kRolledBack;
      } else {
        of.is_retired = true;
        step_.freeze(here);
        lane.outcome = LaneOutcome::kRetired;
      }
    }
    lane.rate_factor = of.rate_factor;
    lane.num_rollbacks = of.num_rollbacks;
  }
  if (rolls_back) snapshots_.take(good);
  for (size_t i = 0; i < record.lanes.size(); ++i)
    record.lanes[i].num_parameters = population_.num_parameters(static_cast<int64_t>(i));
}

std::vector<LaneReport> PopulationTrainer::reports_of(const EpochRecord& record) const {
  std::vector<LaneReport> reports;
  for (size_t i = 0; i < record.lanes.size(); ++i) {
    const LaneRecord& lane = record.lanes[i];
    if (lane.outcome != LaneOutcome::kTrained) continue;
    reports.push_back({.lane = lane.lane,
                       .epoch = record.epoch,
                       .num_epochs = options_.epochs,
                       .train_loss = lane.trained.loss,
                       .train_accuracy = lane.trained.accuracy,
                       .validation_loss = lane.validated.loss,
                       .validation_accuracy = lane.validated.accuracy,
                       .accuracies = lanes_[i].accuracies,
                       .host_gradient_norm = lane.trained.gradient_norm,
                       .slots = lane.slots});
  }
  return reports;
}

void PopulationTrainer::act(int64_t lane, LaneRecord& record, const SeedAction& action) {
  record.action = action;
  if (action.op == SeedOp::kWait) return;
  const auto slot = static_cast<size_t>(action.slot);
  const auto measured = slot < record.slots.size() ? record.slots[slot].measured : grow::SeedMeasurements{};
  record.gate = lifecycle_.act(lane, action, measured);
}

Evaluation::Tick PopulationTrainer::tick_of(const Progress& progress, const std::string& title) const {
  if (!progress) return {};
  return [&progress, title](int64_t done, int64_t total) { progress(title, done, total); };
}

void PopulationTrainer::visit_state(StateArchive& archive) {
  archive.value("epoch", epoch_);
  archive.value("is_under_way", is_under_way_);
  archive.value("batches_done", batches_done_);
  archive.value("first_data_epoch", first_data_epoch_);
  visit_lanes(archive);
  visit_networks(archive);
  archive.part("step", [&] { step_.visit_state(archive); });
  if (setup_.on_failure == OnFailure::kRollBack)
    archive.part("good", [&] { snapshots_.visit_state(archive); });
}

void PopulationTrainer::visit_lanes(StateArchive& archive) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  for (size_t i = 0; i < lanes_.size(); ++i) {
    Lane& of = lanes_[i];
    archive.part(fmt::format("lane{}", i), [&] {
      archive.value("accuracies", of.accuracies);
      std::vector<double> before;
      for (const std::optional<double>& accuracy : of.accuracy_before)
        before.push_back(accuracy.value_or(kNone));
      archive.value("accuracy_before", before);
      if (archive.is_loading())
        for (size_t slot = 0; slot < of.accuracy_before.size(); ++slot)
          of.accuracy_before[slot] =
              std::isnan(before.at(slot)) ? std::nullopt : std::optional(before.at(slot));
      archive.value("rate_factor", of.rate_factor);
      archive.value("num_rollbacks", of.num_rollbacks);
      archive.value("is_retired", of.is_retired);
    });
  }
}

// The stages, then the seeds that these say there are, then the values of all of it.
void PopulationTrainer::visit_networks(StateArchive& archive) {
  uint64_t seed = population_.host().options().seed;
  archive.value("seed", seed);
  std::vector<SlotState> states(lifecycle_.states().begin(), lifecycle_.states().end());
  std::vector<SlotState> applied(population_.applied().begin(), population_.applied().end());
  archive.value("states", states);
  archive.value("applied_states", applied);
  if (archive.is_loading()) {
    step_.follow(population_.begin_anew(seed));
    step_.begin_anew();
    const auto slots = static_cast<size_t>(population_.num_slots());
    if (states.size() != lanes_.size() * slots)
      fail("checkpoint: has {} states of slots, want {} lanes x {} slots", states.size(), lanes_.size(),
           slots);
    for (size_t lane = 0; lane < lanes_.size(); ++lane)
      lifecycle_.restore_lane(static_cast<int64_t>(lane), std::span(states).subspan(lane * slots, slots));
    step_.follow(population_.apply(applied));
  }
  for (const lanes::NamedParameter& named : population_.host().parameters())
    archive.tensor("host." + named.name, named.parameter->storage());
  for (const grow::CnnHost::Buffer& buffer : population_.host().buffers())
    archive.tensor("host." + buffer.name, buffer.tensor);
  const OptimizedGroup& host = step_.optimizers().groups().front();
  for (size_t i = 0; i < host.optimizer->state().size(); ++i)
    archive.tensor(fmt::format("optimizer.host.{}", i), host.optimizer->state()[i]);
  for (int64_t lane = 0; lane < population_.num_lanes(); ++lane) {
    std::vector<grow::NamedTensor> values = population_.lane_values(lane);
    std::ranges::move(step_.optimizers().lane_state(lane), std::back_inserter(values));
    for (const grow::NamedTensor& value : values)
      if (!value.name.starts_with("host.") && !value.name.starts_with("optimizer.host."))
        archive.tensor(fmt::format("lane{}.{}", lane, value.name), value.tensor);
  }
  if (archive.is_loading()) population_.refresh();
}

std::vector<LaneScore> PopulationTrainer::test(const Progress& progress) {
  TrainStepOptions options = evaluation_options(step_, compute_, *setup_.dataset);
  options.graphs.graphs = Graphs::kOff;  // once: nothing to replay
  Evaluation evaluation(population_, test_.gather_call(0), field_, test_.length(), options);
  return evaluation.score(tick_of(progress, "test"));
}

}  // namespace espalier::train
